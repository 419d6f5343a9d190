// Describes what a model reads: samples, and microbatches of them.
//
//   text      input int32 [S], token ids        targets [S], the next tokens
//   images    input float32 [C, H, W]           targets [1], a class
//   words     input float32 [C, H, W]           targets [L], characters from 1 on, then -1 in unused places
//   pairs     two rows of text: a prompt with the answer that is preferred, and with the one that is rejected. The loss
//             compares the model's probabilities of both with a reference model's (kernels/preference.h). With documents,
//             document k of one row and document k of the other are a pair
//
// The model states what a sample is (model::Model::sample), a source fills samples (data/sample_source.h), and the
// engine takes all shapes from here.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace trivet {

struct Microbatch;

struct SampleSpec {
  DType input_dtype = DType::Int32;
  Shape input, targets;      // one sample's; targets are int32, and negative ones do not count
  int64_t input_values = 0;  // integer inputs are below this
  int64_t classes = 0;       // targets are below this
  bool spelled = false;      // the targets of a sample are the characters of one text, which are right or wrong together
  bool documents = false;    // a row of text is several documents that do not see each other
  bool pairs = false;        // a sample is two rows, each with `input` and `targets`; the loss counts a pair once

  int64_t rows() const { return pairs ? 2 : 1; }  // per sample
  // Returns how many targets of a sample the loss can count; with pairs 1, although a sample of documents may have more.
  int64_t counted_targets() const { return spelled || pairs ? 1 : targets.elements(); }
  // The shapes of the rows of `samples` samples: with one more dim, the outermost. So a row has at most Shape::kMaxDims - 1
  // dims; more throw std::invalid_argument.
  Shape inputs_of(int64_t samples) const;
  Shape targets_of(int64_t samples) const;
  // float64: what the loss reads of a reference model; {0} if it reads nothing.
  Shape reference_of(int64_t samples) const;
  // Samples of the first tokens only, for a model that reads tokens.
  SampleSpec cut_to(int64_t tokens) const;
  bool is_sequence() const { return input.dims() == 1 && input_dtype == DType::Int32 && targets == input; }
  // A microbatch of these shapes without memory, for kernels that only count.
  Microbatch without_memory(int64_t samples) const;
};

// B rows: samples, or pairs of neighbouring rows. In a step, rows are numbered from 0 over all ranks and microbatches.
struct Microbatch {
  ConstTensorView input;     // [B, ...SampleSpec::input]
  ConstTensorView targets;   // int32 [B, ...SampleSpec::targets]; negative targets do not count
  int64_t first_sample = 0;  // number of the first of the B rows within the step's global batch
  // For pairs, float64 [B]: log-probabilities of the answers in the reference model. With documents [B, S], of whole sequences:
  // each at the first token of its document.
  ConstTensorView reference = {};
  // For SampleSpec::documents, int32 [B, S] of whole sequences, also if context ranks share `input`: the first token of each
  // token's document (kernels/attention.h; S for padding), and its place in the document (0 for padding).
  ConstTensorView documents = {}, positions = {};
};

// Throws DataError if the microbatch does not have `samples` samples of this kind: another shape or
// dtype, or integers out of range.
void check(const Microbatch& microbatch, const SampleSpec& sample, int64_t samples);

}  // namespace trivet
