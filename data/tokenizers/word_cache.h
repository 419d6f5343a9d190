// Remembers the ids of words, because few words make up most of a text.
//
// A tokenizer is shared by threads, so it owns a pool of caches, of which each call of encode borrows one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

class WordCache {
 public:
  struct Found {
    bool known = false;
    std::span<const int32_t> ids;
  };
  // The ids are valid until the next add().
  Found find(std::string_view word) const;
  // Long words are not remembered. Once the cache is full it begins again.
  void add(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_at = 0, ids_at = 0;
    uint16_t word_bytes = 0, ids = 0;  // word_bytes 0: empty
  };
  void grow();
  size_t place_of(std::string_view word, uint64_t hash) const;

  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  std::string words_;
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

class WordCaches {
 public:
  class Borrowed {
   public:
    explicit Borrowed(WordCaches& owner);
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed();
    WordCache& operator*() { return *cache_; }

   private:
    WordCaches& owner_;
    std::unique_ptr<WordCache> cache_;
  };

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

}  // namespace trivet::data
