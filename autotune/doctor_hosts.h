// Examines several hosts and the network between them, by a job with one rank on each. Hosts that differ from
// the others are reported, because the slowest sets the pace of a job.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autotune/doctor.h"
#include "comm/process_group.h"

namespace trivet::autotune {

struct HostExamined {
  std::string name;
  std::vector<Finding> findings;  // examine()
};

// Measurements from the rank of the row to that of the column; 0 on the diagonal.
struct NetworkMeasured {
  int hosts = 0;
  std::vector<double> bytes_per_second;  // for one long message
  std::vector<double> seconds;           // time of a short message: half of the way there and back
  double all_reduce_bytes = 0, all_reduce_seconds = 0;

  double bandwidth(int from, int to) const { return bytes_per_second[static_cast<size_t>(from) * hosts + to]; }
  double latency(int from, int to) const { return seconds[static_cast<size_t>(from) * hosts + to]; }
};

// Every pair once, in rounds in which no rank has two partners (the circle method of round-robin tournaments).
std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int hosts);

// Called by all ranks of the group; each gets the result of all. The pairs of a round are measured at the same time.
NetworkMeasured measure_network(comm::ProcessGroup& group);

// Returns the texts of all ranks in rank order; the same on all ranks.
std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& text);

// "node3: memory: copy_bytes_per_second 9.1e+09, and half of the hosts have 1.8e+10 or more": figures below kOddOneOut times
// the median, of hosts, and of the links from and to a host.
inline constexpr double kOddOneOut = 0.7;
std::vector<std::string> odd_ones_out(const std::vector<HostExamined>& hosts, const NetworkMeasured& network);

// Tables of the hosts and of the network, and what differs, for people.
std::string describe_hosts(const std::vector<HostExamined>& hosts, const NetworkMeasured& network);
std::string hosts_as_json(const std::vector<HostExamined>& hosts, const NetworkMeasured& network);

// A host's findings as text for another rank, and back. Throws Error (Internal) if it is not such a text.
std::string encode(const HostExamined& host);
HostExamined decode_host(const std::string& text);

}  // namespace trivet::autotune
