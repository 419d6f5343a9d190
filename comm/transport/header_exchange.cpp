#include "comm/transport/header_exchange.h"

#include <type_traits>

namespace trivet::comm {

static_assert(std::is_trivially_copyable_v<Announcement>);

HeaderExchange::HeaderExchange(const GroupLink& link, MessageKind kind) : HeaderExchange(link, kind, link.others()) {}

HeaderExchange::HeaderExchange(const GroupLink& link, MessageKind kind, const std::vector<int>& peers)
    : link_(link), kind_(kind), slots_(link.size()) {
  for (int peer : peers) post(peer);
}

std::unique_ptr<PendingMessage> HeaderExchange::send(int to, const Announcement& mine) const {
  return link_.send(to, kind_, std::as_bytes(std::span(&mine, 1)));
}

Announcement HeaderExchange::take(int from) {
  std::lock_guard lock(mutex_);
  const Announcement arrived = slots_[from].announcement;
  post(from);
  return arrived;
}

std::optional<OperationHeader> HeaderExchange::ahead(int from) const {
  const auto announcement = announced(from);
  if (!announcement) return std::nullopt;
  return announcement->header;
}

std::optional<Announcement> HeaderExchange::announced(int from) const {
  std::lock_guard lock(mutex_);
  const Slot& slot = slots_[from];
  if (!slot.receive || slot.receive->wait(std::chrono::milliseconds(0)) != MessageState::Complete) return std::nullopt;
  return slot.announcement;
}

void HeaderExchange::post(int from) {
  Slot& slot = slots_[from];
  slot.receive = link_.receive(from, kind_, std::as_writable_bytes(std::span(&slot.announcement, 1)));
}

}  // namespace trivet::comm
