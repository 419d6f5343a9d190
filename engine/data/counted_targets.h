// Which samples have targets that the loss counts. A step of samples without any has no loss.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/sample_source.h"
#include "engine/data/token_sequence.h"

namespace trivet::data {

// Whether the loss counts any of the tokens.
bool counts_any(const TokenSequence& tokens);

// Of the first `most` samples; 0: of all. The first function reads only as far as it must.
bool has_any_target(const SampleSource& source, int64_t most = 0);
int64_t samples_without_targets(const SampleSource& source, int64_t most = 0);

// Throws DataError if no sample has a target. `of`: "training", "validation".
void refuse_without_targets(const SampleSource& source, const std::string& of, int64_t most = 0);

}  // namespace trivet::data
