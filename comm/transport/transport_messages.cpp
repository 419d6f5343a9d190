#include "comm/transport/transport_messages.h"

namespace trivet::comm {

TransportMessages::TransportMessages(const GroupLink& link, std::function<uint32_t()> collectives)
    : link_(link),
      collectives_(std::move(collectives)),
      senders_(link, MessageKind::SendHeader),
      receivers_(link, MessageKind::ReceiveHeader),
      sent_to_(link.size()),
      received_from_(link.size()) {}

void TransportMessages::send(OperationHeader header, ConstTensorView data) {
  const int peer = header.root;
  ++under_way_;
  header.number = ++sent_to_[peer];
  compare(header, meet(senders_, receivers_, header), link_.rank(), peer);
  if (data.elements() > 0) {
    std::byte taken{};
    const auto answer = link_.receive(peer, MessageKind::MessageTaken, {&taken, 1});
    const auto message = link_.send(peer, MessageKind::MessageData,
                                    {static_cast<const std::byte*>(data.data), static_cast<size_t>(data.bytes())});
    const PeerMessage pending[] = {{peer, message.get()}, {peer, answer.get()}};
    link_.await(pending, header);
  }
  --under_way_;
}

void TransportMessages::receive(OperationHeader header, TensorView data) {
  const int peer = header.root;
  ++under_way_;
  header.number = ++received_from_[peer];
  std::unique_ptr<PendingMessage> message;
  if (data.elements() > 0)
    message =
        link_.receive(peer, MessageKind::MessageData, {static_cast<std::byte*>(data.data), static_cast<size_t>(data.bytes())});
  compare(meet(receivers_, senders_, header), header, peer, link_.rank());
  if (message) {
    const PeerMessage arriving[] = {{peer, message.get()}};
    link_.await(arriving, header);
    const std::byte taken{};
    const auto answer = link_.send(peer, MessageKind::MessageTaken, {&taken, 1});
    const PeerMessage answering[] = {{peer, answer.get()}};
    link_.await(answering, header);
  }
  --under_way_;
}

OperationHeader TransportMessages::meet(const HeaderExchange& out, HeaderExchange& in, const OperationHeader& mine) {
  const int peer = mine.root;
  const Announcement announcement{.header = mine, .collectives = collectives_()};
  const auto sent = out.send(peer, announcement);
  const PeerMessage pending[] = {in.next(peer), {peer, sent.get()}};
  link_.await(pending, mine);
  return in.take(peer).header;
}

std::optional<OperationHeader> TransportMessages::ahead(int peer) const {
  const auto announcement = announced(peer);
  if (!announcement) return std::nullopt;
  return announcement->header;
}

std::optional<Announcement> TransportMessages::announced(int peer) const {
  if (under_way_ > 0) return std::nullopt;
  if (const auto sends = senders_.announced(peer)) return sends;
  return receivers_.announced(peer);
}

void TransportMessages::compare(const OperationHeader& by_sender, const OperationHeader& by_receiver, int from, int to) const {
  if (by_sender.count == by_receiver.count && by_sender.dtype == by_receiver.dtype) return;
  link_.errors().disagree(from, by_sender, to, by_receiver);
}

}  // namespace trivet::comm
