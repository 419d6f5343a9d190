// Reads logits in an evaluation, to show people what a model predicts (engine/predictions.h). The layer that computes the loss
// hands them over (Context::logits); the loss is the same, to the bit, with a reader and without one.
#pragma once

#include <cstdint>

#include "core/sample.h"

namespace trivet {

namespace kernels {
class Kernels;
}

class LogitsReader {
 public:
  virtual ~LogitsReader() = default;
  // How many samples of the microbatch, from its first on, the reader wants; it may be given more. It must be a function of the
  // argument, because ranks that share the vocabulary compute logits together.
  virtual int64_t wants(const Microbatch& microbatch) const = 0;
  // `logits`: [n, R, V], in memory of the kernels, valid during the call. They are those of n samples, from sample number
  // `first` of the microbatch on. Rows are the steps that the sample's text is read from (CTC), or the last R targets of the
  // sample, of which an image of one class has one. Every rank of the tensor axis is given the same.
  virtual void read(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t first, ConstTensorView logits) = 0;
  // Instead, of a loss layer that compares pairs of answers: their log-probabilities, float64 [B], in memory of the kernels.
  virtual void read_answers(kernels::Kernels& /*kernels*/, const Microbatch& /*microbatch*/,
                            ConstTensorView /*log_probabilities*/) {}
};

}  // namespace trivet
