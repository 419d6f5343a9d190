#include "comm/hosts/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/transport/group_link.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kShortestDeadline{10000};
constexpr size_t kBytes = 64 << 10;  // more than one packet, so that packets of a wrong size are noticed

class Probe {
 public:
  Probe(const WorldRequest& request, Transport& transport, const std::vector<std::string>& interfaces)
      : request_(request),
        transport_(transport),
        interfaces_(interfaces),
        time_(std::max(kShortestDeadline, std::chrono::duration_cast<milliseconds>(request.options.join_deadline / 3))),
        out_(kBytes) {}

  void exchange(const std::vector<int>& partners) {
    std::vector<std::vector<std::byte>> in(partners.size(), out_);
    std::vector<Message> messages;
    const auto tag = static_cast<uint64_t>(MessageKind::Probe);
    for (size_t i = 0; i < partners.size(); ++i) {
      messages.push_back({partners[i], transport_.receive(partners[i], tag, in[i])});
      messages.push_back({partners[i], transport_.send(partners[i], tag, out_)});
    }
    const auto deadline = Clock::now() + time_;
    for (const Message& message : messages) await(message, deadline);
  }

 private:
  struct Message {
    int rank = 0;
    std::unique_ptr<PendingMessage> pending;
  };

  void await(const Message& message, Clock::time_point deadline) const {
    while (message.pending->wait(milliseconds(20)) != MessageState::Complete) {
      if (const auto accusation = request_.job->accusation())
        throw CommError(accusation->code, fmt::format("comm: lost rank {} (host {}) while ranks looked for each other: {}",
                                                      accusation->world_rank, accusation->host, accusation->cause));
      const MessageState state = message.pending->wait(milliseconds(0));
      if (state == MessageState::Complete) return;
      if (state == MessageState::Pending && Clock::now() < deadline) continue;
      throw_not_reached(message.rank, state == MessageState::PeerGone
                                          ? transport_.why_gone(message.rank)
                                          : fmt::format("nothing arrived within {} s", time_.count() / 1000));
    }
  }

  [[noreturn]] void throw_not_reached(int rank, const std::string& why) const {
    throw CommError(
        ExitCode::Rendezvous,
        fmt::format("comm: rank {} ({}; {}) cannot exchange messages with rank {} ({}; {}): {}; is a firewall between "
                    "the hosts, and are these the interfaces that connect them (communication.interface)?",
                    request_.rank, request_.members[request_.rank].where(), interfaces_[request_.rank], rank,
                    request_.members[rank].where(), interfaces_[rank], why));
  }

  const WorldRequest& request_;
  Transport& transport_;
  const std::vector<std::string>& interfaces_;
  const milliseconds time_;
  const std::vector<std::byte> out_;
};

}  // namespace

std::vector<int> probe_partners(int rank, const std::vector<int>& hosts) {
  std::map<int, int> ranks_of;  // by host
  std::vector<int> places;      // each rank's place on its host
  for (int host : hosts) places.push_back(ranks_of[host]++);
  const int here = ranks_of[hosts[rank]];
  std::vector<int> partners;
  for (int other = 0; other < static_cast<int>(hosts.size()); ++other) {
    if (hosts[other] == hosts[rank]) continue;
    const int there = ranks_of[hosts[other]];
    if (places[rank] % there == places[other] || places[other] % here == places[rank]) partners.push_back(other);
  }
  return partners;
}

void probe_other_hosts(const WorldRequest& request, Transport& transport, const std::vector<int>& hosts,
                       const std::vector<std::string>& interfaces) {
  Probe(request, transport, interfaces).exchange(probe_partners(request.rank, hosts));
}

}  // namespace trivet::comm
