#include "comm/hosts/host_messages.h"

namespace trivet::comm {

void HostMessages::post(int from, std::span<std::byte> bytes) {
  receives_[from].push_back(bytes.empty() ? nullptr : link_.receive(from, MessageKind::HostData, bytes));
}

void HostMessages::await(int from) {
  auto& waiting = receives_.at(from);
  if (waiting.front()) {
    const PeerMessage message{from, waiting.front().get()};
    link_.await({&message, 1}, during_);
  }
  waiting.pop_front();
}

void HostMessages::send(int to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  Sends& sends = sends_.back();
  sends.owned.push_back(link_.send(to, MessageKind::HostData, bytes));
  sends.pending.push_back({to, sends.owned.back().get()});
}

void HostMessages::await_sends_before(int64_t steps) {
  for (; static_cast<int64_t>(sends_.size()) > steps; sends_.pop_front()) link_.await(sends_.front().pending, during_);
  sends_.emplace_back();
}

}  // namespace trivet::comm
