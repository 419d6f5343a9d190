// The messages between hosts of one operation of one rank. Those from the same rank arrive in the order in which their receives
// were posted.
#pragma once

#include <deque>
#include <map>

#include "comm/transport/group_link.h"

namespace trivet::comm {

class HostMessages {
 public:
  // The link and the header must outlive this object. Messages that are not complete when it is destroyed are cancelled.
  HostMessages(const GroupLink& link, const OperationHeader& during) : link_(link), during_(during) {}
  HostMessages(const HostMessages&) = delete;
  HostMessages& operator=(const HostMessages&) = delete;

  // Memory that messages use lives until they are complete or cancelled.
  template <typename Memory>
  std::shared_ptr<Memory> keep(std::shared_ptr<Memory> memory) {
    kept_.push_back(memory);
    return memory;
  }

  // Ranks are group ranks. Without bytes, nothing is sent or received.
  void post(int from, std::span<std::byte> bytes);
  // Waits for the oldest receive from this rank that nobody has waited for yet.
  void await(int from);
  void send(int to, std::span<const std::byte> bytes);
  // Ends a step. Waits until the bytes of all sends may be changed, except for those of the last `steps` steps.
  void await_sends_before(int64_t steps);

 private:
  struct Sends {  // the sends of one step
    std::vector<std::unique_ptr<PendingMessage>> owned;
    std::vector<PeerMessage> pending;
  };

  const GroupLink& link_;
  const OperationHeader& during_;
  std::vector<std::shared_ptr<void>> kept_;                              // destroyed last
  std::map<int, std::deque<std::unique_ptr<PendingMessage>>> receives_;  // by sender; null: without bytes
  std::deque<Sends> sends_{1};                                           // the newest last
};

}  // namespace trivet::comm
