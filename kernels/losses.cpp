#include "kernels/losses.h"

#include "kernels/costs.h"
#include "kernels/rules.h"
#include "kernels/verdict.h"

namespace trivet::kernels {
namespace {

void check_loss(const Rules& rules, ConstTensorView loss) {
  if (loss.absent()) return;
  rules.types(DType::Float64, {loss});
  rules.sizes(2, {loss});
}

void check_rows(const Rules& rules, int64_t rows, std::initializer_list<ConstTensorView> views) {
  for (const ConstTensorView& view : views) {
    if (view.absent()) continue;
    rules.types(DType::Float64, {view});
    rules.sizes(rows, {view});
  }
}

}  // namespace

void CrossEntropy::check() const {
  const Rules rules("cross_entropy", {{"logits", logits},
                                      {"targets", targets},
                                      {"dlogits", dlogits},
                                      {"loss", loss},
                                      {"row_losses", row_losses},
                                      {"row_factors", row_factors}});
  check_loss(rules, loss);
  check_rows(rules, logits.shape.rows(), {row_losses, row_factors});
  rules.floating(logits.dtype);
  rules.types(DType::Int32, {targets});
  rules.require(logits.shape.dims() == 2, "logits must be a matrix");
  rules.sizes(logits.shape[0], {targets});
  if (dlogits.absent()) return;
  rules.floating(dlogits.dtype);
  rules.shapes(logits.shape, {dlogits});
}

KernelCall CrossEntropy::describe() const {
  return {.kernel = "cross_entropy",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = 6 * elements(logits),
          .bytes = total_bytes({logits, targets, dlogits})};
}

void RowMaxima::check() const {
  const Rules rules("row_maxima", {{"logits", logits}, {"maximum", maximum}});
  rules.floating(logits.dtype);
  rules.types(statistics_type(logits.dtype), {maximum});
  rules.sizes(logits.shape.rows(), {maximum});
}

KernelCall RowMaxima::describe() const {
  return {.kernel = "row_maxima",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = elements(logits),
          .bytes = total_bytes({logits, maximum})};
}

void RowSums::check() const {
  const Rules rules("row_sums", {{"logits", logits}, {"targets", targets}, {"maximum", maximum}, {"sums", sums}});
  rules.floating(logits.dtype);
  rules.types(DType::Int32, {targets});
  rules.types(statistics_type(logits.dtype), {maximum, sums});
  rules.sizes(logits.shape.rows(), {targets, maximum});
  rules.sizes(2 * logits.shape.rows(), {sums});
}

KernelCall RowSums::describe() const {
  return {.kernel = "row_sums",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = 3 * elements(logits),
          .bytes = total_bytes({logits, targets, maximum, sums})};
}

void CrossEntropyOfPart::check() const {
  const Rules rules("cross_entropy_of_part", {{"logits", logits},
                                              {"targets", targets},
                                              {"maximum", maximum},
                                              {"sums", sums},
                                              {"dlogits", dlogits},
                                              {"loss", loss},
                                              {"row_losses", row_losses},
                                              {"row_factors", row_factors}});
  check_loss(rules, loss);
  check_rows(rules, logits.shape.rows(), {row_losses, row_factors});
  rules.floating(logits.dtype);
  rules.types(DType::Int32, {targets});
  rules.types(statistics_type(logits.dtype), {maximum, sums});
  rules.sizes(logits.shape.rows(), {targets, maximum});
  rules.sizes(2 * logits.shape.rows(), {sums});
  if (dlogits.absent()) return;
  rules.floating(dlogits.dtype);
  rules.shapes(logits.shape, {dlogits});
}

KernelCall CrossEntropyOfPart::describe() const {
  return {.kernel = "cross_entropy_of_part",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = 3 * elements(dlogits),
          .bytes = total_bytes({targets, maximum, sums, dlogits}) + total_bytes({dlogits})};
}

void CountCorrect::check() const {
  const Rules rules("count_correct", {{"logits", logits}, {"targets", targets}, {"correct", correct}});
  rules.floating(logits.dtype);
  rules.types(DType::Int32, {targets});
  rules.types(DType::Float64, {correct});
  rules.sizes(logits.shape.rows(), {targets});
  rules.sizes(1, {correct});
}

KernelCall CountCorrect::describe() const {
  return {.kernel = "count_correct",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = elements(logits),
          .bytes = total_bytes({logits, targets, correct})};
}

void SumLosses::check() const {
  const Rules rules("sum_losses", {{"losses", losses}, {"words", words}});
  rules.types(DType::Float64, {losses});
  rules.types(DType::Int64, {words});
  rules.require(losses.shape.dims() == 2 && further() >= 0, "losses must be rows of a loss, two counts and further numbers");
  rules.sizes(loss_words(further()), {words});
}

KernelCall SumLosses::describe() const {
  return {.kernel = "sum_losses",
          .dtype = losses.dtype,
          .sizes = elements_of(losses),
          .bound = Bound::Memory,
          .flops = elements(losses),
          .bytes = total_bytes({losses}) + written(words, true)};
}

void JudgeGradients::check() const {
  const Rules rules("judge_gradients", {{"square_sum", square_sum}, {"losses", losses}, {"verdict", verdict}});
  rules.types(DType::Int64, {square_sum, losses});
  rules.types(DType::Float64, {verdict});
  rules.sizes(ExactSum::kWords, {square_sum});
  rules.sizes(ExactSum::kWords + 1, {losses});
  rules.sizes(kVerdictSize, {verdict});
}

KernelCall JudgeGradients::describe() const {
  return {.kernel = "judge_gradients",
          .dtype = DType::Int64,
          .sizes = {},
          .bound = Bound::Memory,
          .flops = 0,
          .bytes = total_bytes({square_sum, losses, verdict})};
}

}  // namespace trivet::kernels
