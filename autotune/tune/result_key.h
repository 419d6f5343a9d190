// A short text for everything that a trial's time depends on. A result of an earlier tuning with a different key says nothing.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace trivet::autotune {

// A hash, as 16 hexadecimal digits, of the trial's config (without what only a training run reads), the measured steps, the
// vocabulary, the hardware, the number of ranks and the version of Trivet.
std::string result_key(const Config& config, int64_t vocabulary_size, const std::string& hardware, int world_size);

}  // namespace trivet::autotune
