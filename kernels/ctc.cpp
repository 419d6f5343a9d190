#include "kernels/ctc.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

CtcScratch::CtcScratch(ConstTensorView logits, ConstTensorView targets) {
  constexpr int64_t kPart = 64;  // each part begins at a multiple of this many bytes
  const int64_t samples = logits.shape[0], steps = logits.shape[1], most_states = 2 * targets.shape[1] + 1;
  const DType sums = statistics_type(logits.dtype);
  int64_t end = 0;
  const auto take = [&](int64_t elements, DType dtype) {
    const int64_t first = end;
    end += (samples * elements * size_of(dtype) + kPart - 1) / kPart * kPart;
    return first;
  };
  alpha = take(steps * most_states, sums);
  beta = take(2 * most_states, sums);
  log_sums = take(steps, sums);
  by_class = take(2 * logits.shape[2], sums);
  states = take(most_states, DType::Int32);
  best = take(steps, DType::Int32);
  results = take(3, DType::Float64);
  bytes = end;
}

void Ctc::check() const {
  const Rules rules("ctc", {{"logits", logits},
                            {"targets", targets},
                            {"dlogits", dlogits},
                            {"loss", loss},
                            {"correct", correct},
                            {"scratch", scratch}});
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
  rules.types(DType::UInt8, {scratch});
  rules.require(scratch.elements() >= CtcScratch(logits, targets).bytes, "the scratch memory must have CtcScratch::bytes");
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
