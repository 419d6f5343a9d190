// Ranks that are threads and pretend to be on several hosts, each of which has a file system of its own.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/checkpoint/job_hosts.h"
#include "tests/checkpoint/participant_threads.h"
#include "tests/support/memory_file_system.h"

namespace trivet::support {

// Sends everything to everybody, and takes what is for this rank.
inline void exchange_by_gathering(const comm::Participants& ranks, std::span<const std::byte> out, std::span<std::byte> in,
                                  const comm::ExchangeCounts& counts) {
  std::string mine(reinterpret_cast<const char*>(counts.sent.data()), counts.sent.size() * sizeof(int64_t));
  mine.append(reinterpret_cast<const char*>(out.data()), out.size());
  const auto texts = ranks.gather(mine);
  std::byte* to = in.data();
  for (int rank = 0; rank < ranks.size; ++rank) {
    std::vector<int64_t> sent(static_cast<size_t>(ranks.size));
    std::memcpy(sent.data(), texts[rank].data(), sent.size() * sizeof(int64_t));
    if (sent[ranks.rank] != counts.received[rank]) throw std::logic_error("a rank receives what another does not send");
    const int64_t before = std::accumulate(sent.begin(), sent.begin() + ranks.rank, int64_t{0});
    std::memcpy(to, texts[rank].data() + sent.size() * sizeof(int64_t) + before, sent[ranks.rank]);
    to += sent[ranks.rank];
  }
}

// A job's hosts, by their numbers in the test: job host i is called "h<number>" and has `ranks` ranks.
struct PretendHost {
  int number = 0, ranks = 1;
};

inline checkpoint::JobHosts pretend_hosts(const std::vector<PretendHost>& job, const comm::Participants& ranks) {
  std::vector<int> host_of;
  checkpoint::JobHosts hosts;
  hosts.names.clear();
  for (const PretendHost& host : job) {
    host_of.insert(host_of.end(), host.ranks, host.number);
    hosts.names.push_back("h" + std::to_string(host.number));
  }
  hosts.map = comm::map_hosts(host_of, ranks.rank);
  hosts.exchange = [ranks](auto out, auto in, const comm::ExchangeCounts& counts) {
    exchange_by_gathering(ranks, out, in, counts);
  };
  return hosts;
}

// Runs `body(ranks, hosts, number of this rank's host)` on each rank of a job.
template <typename Body>
void run_on_hosts(const std::vector<PretendHost>& job, const Body& body) {
  int size = 0;
  for (const PretendHost& host : job) size += host.ranks;
  run_ranks(size, [&](const comm::Participants& ranks) {
    const checkpoint::JobHosts hosts = pretend_hosts(job, ranks);
    body(ranks, hosts, job[hosts.self()].number);
  });
}

}  // namespace trivet::support
