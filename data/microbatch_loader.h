// Reads the samples of a rank: those that batch_layout.h says, in the order of a sampler.
#pragma once

#include <memory>
#include <vector>

#include "core/batch_layout.h"
#include "data/sample_source.h"
#include "data/sampler.h"

namespace trivet::data {

// Owns the memory of one microbatch.
struct HostMicrobatch {
  std::vector<std::byte> input;
  std::vector<int32_t> targets;
  std::vector<double> reference;              // for pairs
  std::vector<int32_t> documents, positions;  // for samples of several documents
  Microbatch view;
};

// Keeps the first tokens of each sequence of the microbatch, and moves the rest of its memory together.
void cut_sequences(HostMicrobatch& microbatch, int64_t tokens);

// Stateless: fill() may be called in any order and from any thread, as long as concurrent calls have different `out`.
class MicrobatchLoader {
 public:
  // The sampler must be for the same layout, with any rank.
  MicrobatchLoader(std::shared_ptr<const SampleSource> source, std::shared_ptr<const Sampler> sampler,
                   const BatchLayout& layout);
  // With the endless sampler.
  MicrobatchLoader(std::shared_ptr<const SampleSource> source, const SampleOrder& order, const BatchLayout& layout)
      : MicrobatchLoader(std::move(source), std::make_shared<EndlessSampler>(order, layout), layout) {}

  const BatchLayout& layout() const { return layout_; }
  // Rows without a sample are padding: input 0, targets -1.
  // Fills `out` with this rank's microbatch m of the step; out.view points into out. Reuses out's memory.
  void fill(int64_t step, int64_t m, HostMicrobatch& out) const;
  // The same with any microbatch of the step, by its number over all ranks.
  void fill_numbered(int64_t step, int64_t number, HostMicrobatch& out) const;

 private:
  std::shared_ptr<const SampleSource> source_;
  std::shared_ptr<const Sampler> sampler_;
  BatchLayout layout_;
};

// Reads the validation split in order, in batches of one size. Rows after the last sample are padding: input 0, targets -1.
class EvaluationLoader {
 public:
  // Reads at most `limit` samples; 0: all of them.
  EvaluationLoader(std::shared_ptr<const SampleSource> source, int64_t batch_size, int64_t limit = 0);

  int64_t samples() const { return samples_; }
  int64_t batches() const { return (samples_ + batch_size_ - 1) / batch_size_; }
  // Accepts any batch >= 0: those after the last are all padding, so that all ranks can run the same number.
  void fill(int64_t batch, HostMicrobatch& out) const;

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t batch_size_, samples_;
};

}  // namespace trivet::data
