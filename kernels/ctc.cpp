#include "kernels/ctc.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void Ctc::check() const {
  const Rules rules("ctc",
                    {{"logits", logits}, {"targets", targets}, {"dlogits", dlogits}, {"loss", loss}, {"correct", correct}});
  rules.floating(logits.dtype);
  rules.types(DType::Int32, {targets});
  rules.require(logits.shape.dims() == 3 && targets.shape.dims() == 2 && logits.shape[0] == targets.shape[0],
                "logits must be [B, T, V] and targets [B, L]");
  rules.require(logits.shape[1] >= 1 && logits.shape[2] >= 2, "there must be a step, and a class that is not the blank");
  if (!dlogits.absent()) {
    rules.types(logits.dtype, {dlogits});
    rules.shapes(logits.shape, {dlogits});
  }
  if (!loss.absent()) {
    rules.types(DType::Float64, {loss});
    rules.sizes(2, {loss});
  }
  if (!correct.absent()) {
    rules.types(DType::Float64, {correct});
    rules.sizes(1, {correct});
  }
}

// A few operations for each logit, and for each step and place in a target, forward and backward.
KernelCall Ctc::describe() const {
  const double states = elements(targets) * 2 * static_cast<double>(logits.shape[1]);
  return {.kernel = "ctc",
          .variant = dlogits.absent() ? "" : "gradient",
          .dtype = logits.dtype,
          .sizes = {logits.shape[0], logits.shape[1], logits.shape[2], targets.shape[1]},
          .bound = Bound::Memory,
          .flops = (dlogits.absent() ? 1 : 2) * (4 * elements(logits) + 6 * states),
          .bytes = total_bytes({logits, targets, dlogits, loss, correct})};
}

}  // namespace trivet::kernels
