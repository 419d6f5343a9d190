// Computes which samples of a step a rank reads.
//
// A step's global batch is split into microbatches, which are numbered across all ranks; microbatch m of a rank is number m x
// data_size + data_rank. So the microbatches of a step and their contents are the same for every data-parallel size, and only
// the rank that computes each one changes:
//
//   global batch 8, micro batch 2     microbatch 0   1   2   3       (samples 0 1 | 2 3 | 4 5 | 6 7)
//   data size 1, accumulation 4       rank       0   0   0   0
//   data size 2, accumulation 2       rank       0   1   0   1
//   data size 4, accumulation 1       rank       0   1   2   3
#pragma once

#include <cstdint>

namespace trivet {

// global batch = micro batch x accumulation x data size
struct BatchLayout {
  int64_t micro_batch = 1, accumulation = 1;
  int64_t data_size = 1, data_rank = 0;  // ranks that read different samples (engine/sharing.h), and this one among them
  int64_t global_batch() const { return micro_batch * accumulation * data_size; }
};

// Number, within the step's global batch, of the first sample of this rank's microbatch m.
constexpr int64_t first_sample_of(const BatchLayout& layout, int64_t m) {
  return (m * layout.data_size + layout.data_rank) * layout.micro_batch;
}

}  // namespace trivet
