// Decides which samples a rank reads, and reads them.
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

#include "engine/data/loader.h"

namespace trivet::data {

// global batch = micro batch x accumulation x data size
struct BatchLayout {
  int64_t micro_batch = 1, accumulation = 1, data_size = 1, data_rank = 0;
  int64_t global_batch() const { return micro_batch * accumulation * data_size; }
};

// Number, within the step's global batch, of the first sample of this rank's microbatch m.
constexpr int64_t first_sample_of(const BatchLayout& layout, int64_t m) {
  return (m * layout.data_size + layout.data_rank) * layout.micro_batch;
}

// Stateless: fill() may be called in any order and from any thread, as long as concurrent calls have different `out`.
class MicrobatchLoader {
 public:
  MicrobatchLoader(std::shared_ptr<const TokenFile> tokens, const SampleOrder& order, int64_t sequence_length,
                   const BatchLayout& layout);

  const BatchLayout& layout() const { return layout_; }
  // Fills `out` with this rank's microbatch m of the step; out.view points into out. Reuses out's memory.
  void fill(int64_t step, int64_t m, HostMicrobatch& out) const;

 private:
  std::shared_ptr<const TokenFile> tokens_;
  SampleOrder order_;
  int64_t sequence_length_;
  BatchLayout layout_;
};

// Reads the validation split in order, in batches of one size. Rows after the last sample are padding: token 0, target -1.
class EvaluationLoader {
 public:
  // Reads at most `limit` samples; 0: all of them.
  EvaluationLoader(std::shared_ptr<const TokenFile> tokens, int64_t sequence_length, int64_t batch_size, int64_t limit = 0);

  int64_t samples() const { return samples_; }
  int64_t batches() const { return (samples_ + batch_size_ - 1) / batch_size_; }
  // Accepts any batch >= 0: batches after the last are all padding, so that all ranks can run the same number of them.
  void fill(int64_t batch, HostMicrobatch& out) const;

 private:
  std::shared_ptr<const TokenFile> tokens_;
  int64_t sequence_length_, batch_size_, samples_;
};

}  // namespace trivet::data
