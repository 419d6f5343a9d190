// What ranks say to each other beside the data: joining, the store, heartbeats, accusations. One frame on the wire:
//
//   uint32 payload bytes (little endian) | uint8 kind | payload
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::comm {

enum class FrameKind : uint8_t {
  Join = 1,   // a Member: asks rank 0 to be let in
  Table,      // job id and all Members: everybody is here
  Refuse,     // exit code and reason: not let in, or the rendezvous failed
  Heartbeat,  // empty
  Set,        // key and value of the store
  Accuse,     // rank, exit code, cause
  Bye,        // empty: what closes behind it is no loss
};

struct Frame {
  FrameKind kind = FrameKind::Heartbeat;
  std::string payload;
};

constexpr size_t kFrameHeaderBytes = 5;
constexpr size_t kLongestPayload = 1 << 20;

std::string encode(const Frame& frame);

// Numbers little endian, strings behind their length.
class PayloadWriter {
 public:
  PayloadWriter& number(int64_t value);
  PayloadWriter& text(std::string_view value);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws CommError (Rendezvous) when the payload is shorter than what is asked of it.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
  int64_t number();
  std::string text();

 private:
  std::string_view take(size_t count);
  std::string_view bytes_;
};

}  // namespace trivet::comm
