// Messages between ranks other than tensor data: joining, heartbeats, accusations, meetings, the store. A frame on the wire:
//
//   uint32 payload bytes (little endian) | uint8 kind | payload
//
// wire_messages.h says what the payload of each kind holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trivet::comm {

// The kinds of frames, in the order of control::Message.
enum class FrameKind : uint8_t {
  Join = 1,
  Welcome,
  Refuse,
  Parent,
  Attach,
  Announce,
  Heartbeat,
  Set,
  Accuse,
  Arrive,
  Met,
  Ask,
  Missing,
  Bye,
};

struct Frame {
  FrameKind kind = FrameKind::Heartbeat;
  std::string payload;
};

constexpr size_t kFrameHeaderBytes = 5;

// The limits for frames on a connection. Lists of ranks may be as long as the world is large; a table is accepted only
// on connections that this rank has made, because it comes from above.
struct FrameLimits {
  int world_size = 1;
  bool table = false;
};

// The longest accepted payload of this kind; nullopt if there is no such kind, or if it is not accepted at all.
std::optional<size_t> longest_payload(uint8_t kind, const FrameLimits& limits);

std::string encode(const Frame& frame);

// The frame at the start of `bytes`, and how many bytes it takes; nullopt while it is incomplete. Throws CommError (Rendezvous)
// for an unknown kind, and for a payload that is longer than its kind allows; both are known from the first five bytes.
struct DecodedFrame {
  Frame frame;
  size_t bytes = 0;
};
std::optional<DecodedFrame> decode_frame(std::string_view bytes, const FrameLimits& limits);

// Numbers are little endian; a string comes after its length.
class PayloadWriter {
 public:
  PayloadWriter& number(int64_t value);
  PayloadWriter& text(std::string_view value);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what PayloadWriter wrote. Unexpected content throws CommError (Rendezvous), such as "sent a Join whose rank is 7; it
// must be 0 to 3"; the caller puts the sender's name in front.
class PayloadReader {
 public:
  // `message` names the message in errors: "a Join".
  PayloadReader(std::string_view bytes, std::string message) : bytes_(bytes), message_(std::move(message)) {}
  int64_t number(std::string_view what, int64_t least, int64_t most);
  std::string text(std::string_view what, size_t longest);
  void finish() const;  // nothing may be left
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  std::string_view take(size_t count);
  std::string_view bytes_;
  std::string message_;
};

}  // namespace trivet::comm
