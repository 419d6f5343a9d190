#include "data/tokenizers/word_cache.h"

#include <algorithm>
#include <limits>

#include "data/hash.h"

namespace trivet::data {
namespace {

constexpr size_t kLongestWordBytes = 128, kMostWords = size_t{1} << 18;

}  // namespace

// The slot of the word, or the empty one where it belongs.
size_t WordCache::place_of(std::string_view word, uint64_t hash) const {
  for (size_t at = hash;; ++at) {
    const size_t place = at & (slots_.size() - 1);
    const Slot& slot = slots_[place];
    if (slot.word_bytes == 0) return place;
    if (slot.hash == hash && slot.word_bytes == word.size() && words_.compare(slot.word_at, word.size(), word) == 0)
      return place;
  }
}

WordCache::Found WordCache::find(std::string_view word) const {
  if (word.size() > kLongestWordBytes || word.empty()) return {};
  const Slot& slot = slots_[place_of(word, hash_bytes(word))];
  if (slot.word_bytes == 0) return {};
  return {true, std::span(ids_).subspan(slot.ids_at, slot.ids)};
}

void WordCache::add(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kLongestWordBytes || word.empty() || ids.size() > std::numeric_limits<uint16_t>::max()) return;
  if (used_ == kMostWords) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    ids_.clear();
    used_ = 0;
  }
  if (2 * (used_ + 1) > slots_.size()) grow();
  const uint64_t hash = hash_bytes(word);
  Slot& slot = slots_[place_of(word, hash)];
  if (slot.word_bytes != 0) return;
  slot = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(ids_.size()), static_cast<uint16_t>(word.size()),
          static_cast<uint16_t>(ids.size())};
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

void WordCache::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.word_bytes == 0) continue;
    size_t at = slot.hash;
    while (slots_[at & (slots_.size() - 1)].word_bytes != 0) ++at;
    slots_[at & (slots_.size() - 1)] = slot;
  }
}

WordCaches::Borrowed::Borrowed(WordCaches& owner) : owner_(owner) {
  const std::lock_guard lock(owner_.mutex_);
  if (owner_.free_.empty()) {
    cache_ = std::make_unique<WordCache>();
    return;
  }
  cache_ = std::move(owner_.free_.back());
  owner_.free_.pop_back();
}

WordCaches::Borrowed::~Borrowed() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.free_.push_back(std::move(cache_));
}

}  // namespace trivet::data
