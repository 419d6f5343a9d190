// Reads whole files (unpacked_file.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::data {

// Texts to train on must fit into memory, and a packed file may unpack to a thousand times its size; vocabularies are small.
inline constexpr int64_t kMaxTextBytes = int64_t{64} << 30, kMaxTokenizerBytes = int64_t{64} << 20;

// The file's content, unpacked if it is gzip or zstd. Throws DataError if the file is missing, unreadable, damaged, empty or
// not a regular file, or if it has more than `limit_bytes`, the maximum for its `kind` ("a tokenizer").
std::string read_text(const std::string& path, int64_t limit_bytes = kMaxTextBytes, std::string_view kind = "a text");

}  // namespace trivet::data
