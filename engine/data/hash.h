// XXH3-64: what says that data is the same data. Not for secrets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trivet::data {

uint64_t hash_bytes(std::string_view bytes);
std::string hexadecimal(uint64_t value);  // 16 digits

// The same hash of bytes that come in pieces.
class StreamingHash {
 public:
  StreamingHash();
  ~StreamingHash();
  void add(std::string_view bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
