// XXH3-64, which tells whether data has changed. It is not a cryptographic hash.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trivet::data {

uint64_t hash_bytes(std::string_view bytes);
std::string hexadecimal(uint64_t value);  // 16 digits

// The same hash for bytes that arrive in pieces.
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
