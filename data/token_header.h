// The first 128 bytes of a .tokens file.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace trivet::data {

inline constexpr char kTokenMagic[9] = "TRIVTOK\n";
inline constexpr uint32_t kTokenVersion = 2;  // 1 if nothing follows the ids
inline constexpr uint32_t kPairsVersion = 3;  // the documents are pairs

struct TokenHeader {
  char magic[8] = {};
  uint32_t version = 1;
  uint32_t bytes_per_token = 0;  // 1 uint8, 2 uint16, 4 int32
  uint64_t vocabulary_size = 0;
  uint64_t tokens = 0;
  uint64_t tokens_offset = 0;    // a multiple of 64
  uint64_t tokenizer_bytes = 0;  // its text starts at byte 128
  uint64_t tokenizer_xxh3 = 0;
  uint64_t tokens_xxh3 = 0;
  char tokenizer_name[16] = {};  // zero-padded
  uint64_t documents = 0;        // version 2, as the next three
  uint64_t documents_xxh3 = 0;
  uint64_t ignored_bytes = 0;  // 0, or one bit for each token
  uint64_t ignored_xxh3 = 0;
  char reserved[8] = {};     // zeros
  uint64_t header_xxh3 = 0;  // hash of the 120 bytes before it
};
static_assert(sizeof(TokenHeader) == 128 && std::endian::native == std::endian::little);

inline constexpr size_t kTokenHeaderHashed = 120;

// Larger sizes are impossible. Below it, no sum of them overflows.
inline constexpr uint64_t kMostTokenBytes = uint64_t{1} << 60;

// Version 2: where the ends of documents begin. The bits of ignored tokens follow them.
inline uint64_t documents_offset(const TokenHeader& header) {
  return (header.tokens_offset + header.tokens * header.bytes_per_token + 7) / 8 * 8;
}

// The size of the whole file.
inline uint64_t file_bytes(const TokenHeader& header) {
  if (header.version < kTokenVersion) return header.tokens_offset + header.tokens * header.bytes_per_token;
  return documents_offset(header) + header.documents * 8 + header.ignored_bytes;
}

}  // namespace trivet::data
