// The printable characters with which GPT-2's files write bytes: 33-126, 161-172 and 174-255 stand for themselves, and the
// other 68 bytes, in ascending order, are U+0100, U+0101, ... A token in a file therefore has no white space and no control
// characters, and is valid UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trivet::data {

// The 256 bytes in the order of GPT-2's ids: those that stand for themselves first, '!' = 0.
const std::array<uint8_t, 256>& bytes_by_id();

std::string to_byte_alphabet(std::string_view bytes);
// nullopt if a character is not in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace trivet::data
