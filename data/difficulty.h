// Measures how difficult the samples of a text are, by the metrics of a curriculum.
//
//   length   the number of its tokens
//   rarity   minus the sum of the natural logarithms of the frequencies of its tokens, rounded down (the vocabulary rarity of
//            Li et al., 2022, arXiv 2212.03597). The frequency of a token is its share of the tokens of all samples
//
// The tokens of a sample are its inputs up to its last target that counts: what comes later, such as padding, changes
// no loss. Both rows of a pair of answers count. Difficulties are computed with integers, so that ranks on different
// machines agree on them to the last bit.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sample_source.h"

namespace trivet::data {

// Return a number for each sample. Both read all samples, rarities_of() twice.
std::vector<int64_t> lengths_of(const SampleSource& samples);
std::vector<int64_t> rarities_of(const SampleSource& samples);

// -ln(count / total) in units of 2^-20, from 0; 1 <= count <= total.
int64_t fixed_rarity(uint64_t count, uint64_t total);

}  // namespace trivet::data
