#include "data/text_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/utf8.h"

namespace trivet::data {
namespace {

// Counts the bytes at the beginning that are ASCII without NUL. Eight at once, because most text is.
size_t plain_bytes(std::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  size_t count = 0;
  for (; count + 8 <= text.size(); count += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + count, sizeof word);
    if (((word | (word - kOnes)) & kHigh) != 0) break;  // a byte above 127, or NUL (and sometimes what is next to it)
  }
  const auto is_plain = [](char byte) { return byte > 0; };
  while (count < text.size() && is_plain(text[count])) ++count;
  return count;
}

// Returns how many bytes a character that begins so has; 0: none begins so.
size_t character_bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  if (byte >= 0xC2 && byte <= 0xDF) return 2;
  if (byte >= 0xE0 && byte <= 0xEF) return 3;
  return byte >= 0xF0 && byte <= 0xF4 ? 4 : 0;
}

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Checks whether the rest of a piece may go on as a character in the next one.
bool may_go_on(std::string_view rest) {
  return rest.size() < character_bytes(rest[0]) && std::ranges::all_of(rest.substr(1), is_continuation);
}

}  // namespace

void TextCheck::find(int64_t place, char byte) {
  place_ = place;
  byte_ = static_cast<uint8_t>(byte);
}

// Gives the incomplete character the bytes that it lacks.
void TextCheck::complete(std::string_view& piece) {
  const auto start = bytes_ - static_cast<int64_t>(incomplete_.size());
  while (!piece.empty() && incomplete_.size() < character_bytes(incomplete_[0])) {
    incomplete_ += piece[0];
    piece.remove_prefix(1);
    ++bytes_;
  }
  if (incomplete_.size() == character_bytes(incomplete_[0])) {
    if (decode_utf8(incomplete_, 0).bytes == 0) find(start, incomplete_[0]);
    incomplete_.clear();
  } else if (!may_go_on(incomplete_)) {
    find(start, incomplete_[0]);
  }
}

void TextCheck::add_whole(std::string_view piece) {
  for (size_t at = 0; (at += plain_bytes(piece.substr(at))) < piece.size();) {
    const CodePoint point = piece[at] == 0 ? CodePoint{} : decode_utf8(piece, at);
    if (point.bytes == 0 && piece[at] != 0 && may_go_on(piece.substr(at))) {
      incomplete_ = piece.substr(at);
      break;
    }
    if (point.bytes == 0) return find(bytes_ + static_cast<int64_t>(at), piece[at]);
    at += static_cast<size_t>(point.bytes);
  }
  bytes_ += static_cast<int64_t>(piece.size());
}

void TextCheck::add(std::string_view piece) {
  if (!is_text()) return;
  if (!incomplete_.empty()) complete(piece);
  if (is_text() && !piece.empty()) add_whole(piece);
}

void TextCheck::finish() {
  if (is_text() && !incomplete_.empty()) find(bytes_ - static_cast<int64_t>(incomplete_.size()), incomplete_[0]);
}

std::string TextCheck::in_words() const {
  if (byte_ == 0) return fmt::format("holds NUL at byte {}", place_);
  return fmt::format("is not UTF-8 at byte {} (0x{:02x})", place_, byte_);
}

}  // namespace trivet::data
