// Finds samples that have targets which the loss counts. A step of samples without any has no loss.
#pragma once

#include <cstdint>
#include <string>

#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

// Pairs of answers.
struct PairCounts {
  int64_t all = 0, equal = 0;  // equal: both answers have the same tokens
  void add(const PairCounts& more) { all += more.all, equal += more.equal; }
  // "2 of 8 pairs have equal answers ..."
  std::string in_words() const;
};

// `most`: compares only so many tokens of each answer with its prompt; 0: all.
PairCounts count_pairs(const TokenSequence& tokens, int64_t most = 0);

// Checks whether the loss counts any of the tokens.
bool counts_any(const TokenSequence& tokens);

// Look at the first `most` samples; 0: at all. The first function reads only as far as it must.
bool has_any_target(const SampleSource& source, int64_t most = 0);
int64_t samples_without_targets(const SampleSource& source, int64_t most = 0);

// Throws DataError if no sample has a target. `of`: "training", "validation".
void refuse_without_targets(const SampleSource& source, const std::string& of, int64_t most = 0);

}  // namespace trivet::data
