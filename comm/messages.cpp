#include "comm/messages.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trivet::comm {
namespace {

int64_t chunks_of(int64_t bytes, int64_t chunk_bytes) { return bytes == 0 ? 0 : (bytes + chunk_bytes - 1) / chunk_bytes; }

}  // namespace

Messages::Messages(const CounterWait& wait, const Board& board, const SharedMemory& memory)
    : wait_(wait), board_(board), memory_(memory), lines_(wait.size()), to_(wait.size()), from_(wait.size()) {
  std::iota(lines_.begin(), lines_.end(), 0);
}

Messages::Messages(const CounterWait& wait, const Board& board, const SharedMemory& memory, const std::vector<int>& ranks)
    : wait_(wait), board_(board), memory_(memory), lines_(wait.size(), -1), to_(wait.size()), from_(wait.size()) {
  for (size_t line = 0; line < ranks.size(); ++line) lines_[ranks[line]] = static_cast<int>(line);
}

void Messages::send(OperationHeader header, ConstTensorView data) {
  const int peer = header.root;
  ++under_way_;
  Mailbox& mailbox = board_.mailbox(line(), lines_[peer]);
  End& end = to_[peer];
  header.number = ++end.operations;
  Entry& mine = mailbox.sender[end.operations % 2];
  mine = {header, memory_.publish(data.data, data.bytes()), 0};

  std::unique_lock lock(slots_, std::defer_lock);
  const bool staged = mine.in == 0;
  if (staged) lock.lock();
  const int64_t chunk = chunk_bytes(mine, data.bytes());
  const int64_t chunks = chunks_of(data.bytes(), chunk);
  const auto fill = [&](int64_t index) {
    const int64_t bytes = std::min(chunk, data.bytes() - index * chunk);
    const auto* from = static_cast<const std::byte*>(data.data) + index * chunk;
    if (staged) std::memcpy(board_.send_slot(line(), index), from, bytes);
  };
  if (chunks > 0) fill(0);
  mailbox.sent.advance();
  const uint32_t entered = end.received + 1;
  wait_.await(mailbox.received, peer, entered, header);
  compare(mine, mailbox.receiver[end.operations % 2], wait_.rank(), peer);
  for (int64_t index = 1; index < chunks; ++index) {
    if (index >= 2) wait_.await(mailbox.received, peer, entered + static_cast<uint32_t>(index - 1), header);
    fill(index);
    mailbox.sent.advance();
  }
  end.received = entered + static_cast<uint32_t>(chunks);
  wait_.await(mailbox.received, peer, end.received, header);
  --under_way_;
}

void Messages::receive(OperationHeader header, TensorView data) {
  const int peer = header.root;
  ++under_way_;
  Mailbox& mailbox = board_.mailbox(lines_[peer], line());
  End& end = from_[peer];
  header.number = ++end.operations;
  Entry& mine = mailbox.receiver[end.operations % 2];
  mine = {header, 0, 0};

  mailbox.received.advance();
  const uint32_t entered = end.sent + 1;
  wait_.await(mailbox.sent, peer, entered, header);
  const Entry& sender = mailbox.sender[end.operations % 2];
  compare(sender, mine, peer, wait_.rank());
  const int64_t chunk = chunk_bytes(sender, data.bytes());
  const int64_t chunks = chunks_of(data.bytes(), chunk);
  for (int64_t index = 0; index < chunks; ++index) {
    if (index > 0) wait_.await(mailbox.sent, peer, entered + static_cast<uint32_t>(index), header);
    const int64_t bytes = std::min(chunk, data.bytes() - index * chunk);
    const std::byte* from = sender.in != 0 ? memory_.resolve(sender.in) : board_.send_slot(lines_[peer], index);
    std::memcpy(static_cast<std::byte*>(data.data) + index * chunk, from, bytes);
    mailbox.received.advance();
  }
  end.sent = entered + static_cast<uint32_t>(std::max<int64_t>(chunks, 1) - 1);
  --under_way_;
}

std::optional<OperationHeader> Messages::ahead(int peer) const {
  if (under_way_ > 0) return std::nullopt;
  const Mailbox& in = board_.mailbox(lines_[peer], line());
  if (in.sent.reached(from_[peer].sent + 1)) return in.sender[(from_[peer].operations + 1) % 2].header;
  const Mailbox& out = board_.mailbox(line(), lines_[peer]);
  if (out.received.reached(to_[peer].received + 1)) return out.receiver[(to_[peer].operations + 1) % 2].header;
  return std::nullopt;
}

void Messages::compare(const Entry& sender, const Entry& receiver, int from, int to) const {
  if (sender.header.count == receiver.header.count && sender.header.dtype == receiver.header.dtype) return;
  wait_.disagree(from, sender.header, to, receiver.header);
}

int64_t Messages::chunk_bytes(const Entry& sender, int64_t bytes) const {
  return sender.in != 0 ? std::max<int64_t>(bytes, 1) : std::max<int64_t>(board_.slot_bytes(), 1);
}

}  // namespace trivet::comm
