#include "kernels/preference.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void PreferenceLoss::check() const {
  const Rules rules("preference_loss", {{"row_losses", row_losses},
                                        {"targets", targets},
                                        {"documents", documents},
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
  if (!documents.absent()) {
    rules.types(DType::Int32, {documents});
    rules.shapes(row_losses.shape, {documents});
  }
  const int64_t answers = documents.absent() ? row_losses.shape[0] : row_losses.elements();
  rules.sizes(answers, {reference});
  const auto optional = [&](ConstTensorView view, int64_t elements) {
    if (view.absent()) return;
    rules.types(DType::Float64, {view});
    rules.sizes(elements, {view});
  };
  optional(factors, row_losses.elements());
  optional(log_probabilities, answers);
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
          .bytes = total_bytes({row_losses, targets, documents, reference, factors})};
}

}  // namespace trivet::kernels
