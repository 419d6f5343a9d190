#include "data/tokenizers/charsmap.h"

#include <cstring>

#include "data/data_error.h"

namespace trivet::data {
namespace {

// A unit of the double array: a node, or the value of the node before it.
struct Unit {
  uint32_t bits;
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7FFFFFFF; }
  uint32_t label() const { return bits & 0x800000FF; }
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& source) {
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes > bytes.size() - sizeof trie_bytes)
    bad_file(source, "the precompiled map of characters is damaged: its trie is larger than the map");
  trie_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = bytes.substr(sizeof trie_bytes + trie_bytes);
}

std::string_view Charsmap::replacement_at(uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  const size_t end = replacements_.find('\0', offset);
  return std::string_view(replacements_).substr(offset, end == std::string::npos ? end : end - offset);
}

// Calls visit(bytes, offset of the replacement) for each beginning of `text` that has one, the shortest first, until it returns
// false.
template <typename Visit>
void Charsmap::for_each_entry(std::string_view text, Visit visit) const {
  size_t at = Unit{trie_[0]}.offset();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= trie_.size() || byte == 0) return;
    const Unit unit{trie_[at]};
    if (unit.label() != byte) return;
    at ^= unit.offset();
    if (at >= trie_.size()) return;
    if (unit.has_value() && !visit(i + 1, Unit{trie_[at]}.value())) return;
  }
}

std::optional<Charsmap::Entry> Charsmap::shortest(std::string_view text) const {
  std::optional<Entry> found;
  for_each_entry(text, [&](size_t bytes, uint32_t offset) {
    found = {bytes, replacement_at(offset)};
    return false;
  });
  return found;
}

std::optional<Charsmap::Entry> Charsmap::longest(std::string_view text) const {
  std::optional<Entry> found;
  for_each_entry(text, [&](size_t bytes, uint32_t offset) {
    found = {bytes, replacement_at(offset)};
    return true;
  });
  return found;
}

}  // namespace trivet::data
