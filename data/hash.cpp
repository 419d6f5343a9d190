#include "data/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trivet::data {

uint64_t hash_bytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hexadecimal(uint64_t value) { return fmt::format("{:016x}", value); }

struct StreamingHash::State {
  XXH3_state_t xxh;
};

StreamingHash::StreamingHash() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
StreamingHash::~StreamingHash() = default;
void StreamingHash::add(std::string_view bytes) { XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size()); }
uint64_t StreamingHash::value() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace trivet::data
