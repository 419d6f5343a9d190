// Byte-level BPE learnt from a text: again and again, the most frequent pair of neighbours within words becomes a token. Of
// pairs equally frequent the greatest wins, comparing the bytes of the left and then of the right token; so the result depends
// on the words and their counts alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/data/bpe.h"

namespace trivet::data {

// Words and how often they occur; text may come in pieces that end where words end (piece_bytes of word_split.h).
class WordCounts {
 public:
  void add(std::string_view text);
  const std::unordered_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  std::unordered_map<std::string, int64_t> counts_;
};

// Called with the tokens there are so far and how many there will be.
using TrainingProgress = std::function<void(int64_t tokens, int64_t of)>;

// `vocabulary_size` = 256 bytes + merged tokens + <|endoftext|>, so at least 257. Smaller when no pair is left to merge.
std::shared_ptr<BpeTokenizer> train_bpe(const WordCounts& words, int64_t vocabulary_size,
                                        const TrainingProgress& progress = {});

}  // namespace trivet::data
