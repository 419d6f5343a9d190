#include "comm/frame.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trivet::comm {
namespace {

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

std::optional<size_t> longest_payload(uint8_t kind, const FrameLimits& limits) {
  const auto ranks = static_cast<size_t>(limits.world_size);
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::Bye: return 0;
    case FrameKind::Heartbeat: return 8;
    case FrameKind::Welcome:
    case FrameKind::Parent:
    case FrameKind::Met:
    case FrameKind::Ask: return 4096;
    case FrameKind::Refuse:
    case FrameKind::Attach:
    case FrameKind::Accuse: return 8192;
    case FrameKind::Arrive:
    case FrameKind::Missing: return 4096 + 8 * ranks;
    case FrameKind::Set: return size_t{128} << 10;
    case FrameKind::Join: return size_t{512} << 10;
    case FrameKind::Announce: return limits.table ? std::optional(1024 + 768 * ranks) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<DecodedFrame> decode_frame(std::string_view bytes, const FrameLimits& limits) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  const uint64_t length = little_endian(bytes.substr(0, 4));
  const auto kind = static_cast<uint8_t>(bytes[4]);
  const auto longest = longest_payload(kind, limits);
  if (!longest || length > *longest) throw CommError(ExitCode::Rendezvous, "sent bytes that are not a message of a rank");
  if (bytes.size() < kFrameHeaderBytes + length) return std::nullopt;
  return DecodedFrame{{static_cast<FrameKind>(kind), std::string(bytes.substr(kFrameHeaderBytes, length))},
                      kFrameHeaderBytes + length};
}

std::string encode(const Frame& frame) {
  std::string out;
  append_little_endian(out, frame.payload.size(), 4);
  out.push_back(static_cast<char>(frame.kind));
  return out + frame.payload;
}

PayloadWriter& PayloadWriter::number(int64_t value) {
  append_little_endian(bytes_, static_cast<uint64_t>(value), 8);
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  append_little_endian(bytes_, value.size(), 4);
  bytes_.append(value);
  return *this;
}

int64_t PayloadReader::number(std::string_view what, int64_t least, int64_t most) {
  const auto value = static_cast<int64_t>(little_endian(take(8)));
  if (value < least || value > most) refuse(fmt::format("whose {} is {}; it must be {} to {}", what, value, least, most));
  return value;
}

std::string PayloadReader::text(std::string_view what, size_t longest) {
  const uint64_t length = little_endian(take(4));
  if (length > longest) refuse(fmt::format("whose {} has {} bytes; at most {} are accepted", what, length, longest));
  return std::string(take(length));
}

void PayloadReader::finish() const {
  if (!bytes_.empty()) refuse(fmt::format("with {} bytes after its end", bytes_.size()));
}

void PayloadReader::refuse(const std::string& why) const {
  throw CommError(ExitCode::Rendezvous, fmt::format("sent {} {}", message_, why));
}

std::string_view PayloadReader::take(size_t count) {
  if (count > bytes_.size()) refuse("that is cut short");
  const std::string_view head = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return head;
}

}  // namespace trivet::comm
