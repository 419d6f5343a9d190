// What a model reads: samples, and microbatches of them.
//
//   text      input int32 [S], token ids        targets [S], the next tokens
//   images    input float32 [C, H, W]           targets [1], a class
//   words     input float32 [C, H, W]           targets [L], characters from 1 on, then -1 in unused places
//
// The model states what a sample is (model::Model::sample), a source fills samples (engine/data/sample_source.h), and the
// engine takes all shapes from here.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace trivet {

struct Microbatch;

struct SampleSpec {
  DType input_dtype = DType::Int32;
  Shape input, targets;      // of one sample; targets are int32, and negative ones do not count
  int64_t input_values = 0;  // integer inputs are below this
  int64_t classes = 0;       // targets are below this
  bool spelled = false;      // the targets of a sample are the characters of one text, which are right or wrong together

  // How many targets of a sample the loss can count.
  int64_t counted_targets() const { return spelled ? 1 : targets.elements(); }
  // The shapes of `samples` samples: with one more dim, the outermost. So a sample has at most Shape::kMaxDims - 1 dims; more
  // throw std::invalid_argument.
  Shape inputs_of(int64_t samples) const;
  Shape targets_of(int64_t samples) const;
  // Samples of the first tokens only, for a model that reads tokens.
  SampleSpec cut_to(int64_t tokens) const;
  bool is_sequence() const { return input.dims() == 1 && input_dtype == DType::Int32 && targets == input; }
  // A microbatch of these shapes without memory, for kernels that only count.
  Microbatch without_memory(int64_t samples) const;
};

// B samples. In a step, samples are numbered 0 .. global batch - 1 over all ranks and microbatches.
struct Microbatch {
  ConstTensorView input;     // [B, ...SampleSpec::input]
  ConstTensorView targets;   // int32 [B, ...SampleSpec::targets]; negative targets do not count
  int64_t first_sample = 0;  // number of the first of the B samples within the step's global batch
};

// Throws DataError if the microbatch does not have `samples` samples of this kind: another shape or
// dtype, or integers out of range.
void check(const Microbatch& microbatch, const SampleSpec& sample, int64_t samples);

}  // namespace trivet
