// Blocking send and receive of one rank of a group over a transport. Both sides announce themselves and compare their headers;
// then the data goes straight into the receiver's tensor:
//
//   sender    SendHeader ->                       <- ReceiveHeader    MessageData ->                    <- MessageTaken
//   receiver  posts a receive, ReceiveHeader ->   <- SendHeader                        MessageTaken ->
//
// Other ranks are not involved. A rank may send and receive with different peers on different threads.
#pragma once

#include <atomic>
#include <functional>

#include "comm/transport/header_exchange.h"

namespace trivet::comm {

class TransportMessages {
 public:
  // The link must outlive this object. `collectives` says how many collective operations this rank has entered.
  explicit TransportMessages(
      const GroupLink& link, std::function<uint32_t()> collectives = [] { return 0; });

  void send(OperationHeader header, ConstTensorView data);
  void receive(OperationHeader header, TensorView data);
  // The message for which `peer` waits for this rank, while this rank sends and receives nothing.
  std::optional<OperationHeader> ahead(int peer) const;
  std::optional<Announcement> announced(int peer) const;

 private:
  // Sends this rank's header and returns the peer's, when both sides have entered.
  OperationHeader meet(const HeaderExchange& out, HeaderExchange& in, const OperationHeader& mine);
  void compare(const OperationHeader& by_sender, const OperationHeader& by_receiver, int from, int to) const;

  const GroupLink& link_;
  const std::function<uint32_t()> collectives_;
  HeaderExchange senders_, receivers_;             // headers of ranks that send, and of ranks that receive
  std::vector<uint32_t> sent_to_, received_from_;  // messages, by group rank
  std::atomic<int> under_way_{0};
};

}  // namespace trivet::comm
