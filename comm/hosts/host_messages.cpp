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
  sends_.push_back(link_.send(to, MessageKind::HostData, bytes));
  sent_.push_back({to, sends_.back().get()});
}

void HostMessages::await_sends() {
  link_.await(sent_, during_);
  sent_.clear();
  sends_.clear();
}

}  // namespace trivet::comm
