#include "kernels/preference.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void PreferenceLoss::check() const {
  const Rules rules("preference_loss", {{"row_losses", row_losses},
                                        {"targets", targets},
                                        {"reference", reference},
                                        {"factors", factors},
                                        {"log_probabilities", log_probabilities},
                                        {"loss", loss},
                                        {"correct", correct},
                                        {"rewards", rewards}});
  rules.types(DType::Float64, {row_losses, reference});
  rules.types(DType::Int32, {targets});
  rules.require(row_losses.shape.dims() == 2 && row_losses.shape[0] % 2 == 0, "row_losses must be pairs of rows");
  rules.shapes(row_losses.shape, {targets});
  rules.sizes(row_losses.shape[0], {reference});
  const auto optional = [&](ConstTensorView view, int64_t elements) {
    if (view.absent()) return;
    rules.types(DType::Float64, {view});
    rules.sizes(elements, {view});
  };
  optional(factors, row_losses.elements());
  optional(log_probabilities, row_losses.shape[0]);
  optional(loss, 2);
  optional(correct, 1);
  optional(rewards, 2);
}

KernelCall PreferenceLoss::describe() const {
  return {.kernel = "preference_loss",
          .dtype = row_losses.dtype,
          .sizes = rows_of(row_losses),
          .bound = Bound::Memory,
          .flops = elements(row_losses),
          .bytes = total_bytes({row_losses, targets, reference, factors})};
}

}  // namespace trivet::kernels
