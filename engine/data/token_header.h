// The first 128 bytes of a .tokens file.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace trivet::data {

inline constexpr char kTokenMagic[9] = "TRIVTOK\n";
inline constexpr uint32_t kTokenVersion = 1;

struct TokenHeader {
  char magic[8] = {};
  uint32_t version = kTokenVersion;
  uint32_t bytes_per_token = 0;  // 1 uint8, 2 uint16, 4 int32
  uint64_t vocabulary_size = 0;
  uint64_t tokens = 0;
  uint64_t tokens_offset = 0;    // a multiple of 64
  uint64_t tokenizer_bytes = 0;  // its text starts at byte 128
  uint64_t tokenizer_xxh3 = 0;
  uint64_t tokens_xxh3 = 0;
  char tokenizer_name[16] = {};  // zero-padded
  char reserved[40] = {};        // zeros
  uint64_t header_xxh3 = 0;      // of the 120 bytes before it
};
static_assert(sizeof(TokenHeader) == 128 && std::endian::native == std::endian::little);

inline constexpr size_t kTokenHeaderHashed = 120;

}  // namespace trivet::data
