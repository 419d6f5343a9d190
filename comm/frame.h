// Messages between ranks other than tensor data: joining, the store, heartbeats, accusations. A frame on the wire:
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

enum class FrameKind : uint8_t {
  Join = 1,   // a Member: asks rank 0 to be let in
  Table,      // job id and all Members: everybody has joined
  Refuse,     // exit code and reason: not let in, or the rendezvous failed
  Heartbeat,  // empty
  Set,        // key and value of the store
  Accuse,     // rank, exit code, cause
  Bye,        // empty: a connection that closes after it is not a loss
  Welcome,    // rank 0's Member: the join was received, wait for the table
};

struct Frame {
  FrameKind kind = FrameKind::Heartbeat;
  std::string payload;
};

constexpr size_t kFrameHeaderBytes = 5;
constexpr size_t kLongestPayload = 1 << 20;

// The longest accepted payload of this kind, at most kLongestPayload; nullopt if there is no such kind.
std::optional<size_t> longest_payload(uint8_t kind);

std::string encode(const Frame& frame);

// The frame at the start of `bytes`, and how many bytes it takes; nullopt while it is incomplete. Throws CommError (Rendezvous)
// for an unknown kind, and for a payload that is longer than its kind allows.
struct DecodedFrame {
  Frame frame;
  size_t bytes = 0;
};
std::optional<DecodedFrame> decode_frame(std::string_view bytes);

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
