// What a trial's time depends on, as a short text: where it differs, a result of an earlier tuning says nothing.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace trivet::autotune {

// The trial's config without what only a training run reads, the measured steps, the vocabulary, the hardware, the number of
// ranks and the version of Trivet; 16 hexadecimal digits.
std::string result_key(const Config& config, int64_t vocabulary_size, const std::string& hardware, int world_size);

}  // namespace trivet::autotune
