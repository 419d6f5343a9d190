// Learns a byte-level BPE vocabulary from a text: again and again, the most frequent pair of neighbouring tokens within words
// becomes a new token. Among equally frequent pairs the greatest wins, comparing the bytes of the left token and then of the
// right one, so the result depends only on the words and their counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe.h"

namespace trivet::data {

// Words and how often they occur; text may be added in pieces that end where words end (piece_bytes in word_split.h).
class WordCounts {
 public:
  void add(std::string_view text);
  const std::unordered_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  std::unordered_map<std::string, int64_t> counts_;
};

// Called with the number of tokens so far and the number wanted.
using TrainingProgress = std::function<void(int64_t tokens, int64_t of)>;

// `vocabulary_size` = 256 bytes + merged tokens + <|endoftext|>, so at least 257. The vocabulary is smaller if no pair is left
// to merge.
std::shared_ptr<BpeTokenizer> train_bpe(const WordCounts& words, int64_t vocabulary_size,
                                        const TrainingProgress& progress = {});

}  // namespace trivet::data
