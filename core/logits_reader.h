// Reads logits in an evaluation, to show people what a model predicts (trainer/predictions.h). The layer that computes the loss
// hands them over (Context::logits); the loss is the same, to the bit, with a reader and without one.
#pragma once

#include <cstdint>

#include "core/sample.h"

namespace trivet {

namespace kernels {
class Kernels;
}

// Targets of one sample: `count` of them from number `first` on.
struct TargetRange {
  int64_t first = 0, count = 0;
};

class LogitsReader {
 public:
  static constexpr int64_t kMostRows = 32;  // the most that one call of read() has of a sample

  virtual ~LogitsReader() = default;
  // Returns how many samples of the microbatch, from its first on, the reader wants; it may be given more. The number
  // must be a function of the argument, because ranks that share the vocabulary compute logits together.
  virtual int64_t wants(const Microbatch& microbatch) const = 0;
  // Returns which of the `targets` of a wanted sample the reader wants from a layer that predicts many: the last ones,
  // unless overridden. The range must be a function of the arguments, as above.
  virtual TargetRange wants_targets(kernels::Kernels& /*kernels*/, const Microbatch& /*microbatch*/, int64_t /*sample*/,
                                    int64_t targets) const {
    const int64_t count = targets < kMostRows ? targets : kMostRows;
    return {targets - count, count};
  }
  // `logits`: [n, R, V], in memory of the kernels, valid during the call. They are those of n samples, from sample number
  // `first` of the microbatch on. Rows are the steps that the sample's text is read from (CTC), or R targets of the sample from
  // number `first_target` on, of which an image of one class has one. The targets that are wanted of a text come in order, in
  // as many calls as they need. Every rank of the tensor axis is given the same.
  virtual void read(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t first, ConstTensorView logits,
                    int64_t first_target = 0) = 0;
  // Instead, of a loss layer that compares pairs of answers: their log-probabilities, float64 [B], in memory of the kernels.
  // With documents [B, S], each at the first token of its document, as in Microbatch::reference.
  virtual void read_answers(kernels::Kernels& /*kernels*/, const Microbatch& /*microbatch*/,
                            ConstTensorView /*log_probabilities*/) {}
};

}  // namespace trivet
