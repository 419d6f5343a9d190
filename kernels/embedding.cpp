#include "kernels/embedding.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void Embedding::check() const {
  const Rules rules("embedding",
                    {{"tokens", tokens}, {"table", table}, {"positions", positions}, {"places", places}, {"out", out}});
  rules.types(DType::Int32, {tokens});
  rules.floating(table.dtype);
  rules.types(table.dtype, {out});
  rules.require(tokens.shape.dims() == 2 && table.shape.dims() == 2, "tokens and table must be matrices");
  rules.sizes(tokens.elements() * table.shape[1], {out});
  if (positions.absent()) return;
  rules.types(table.dtype, {positions});
  rules.require(positions.shape.dims() == 2 && (positions.shape[0] >= tokens.shape[1] || !places.absent()) &&
                    positions.shape[1] == table.shape[1],
                "positions must be at least [S, H]");
  if (places.absent()) return;
  rules.types(DType::Int32, {places});
  rules.sizes(tokens.elements(), {places});
}

KernelCall Embedding::describe() const {
  return {.kernel = "embedding",
          .dtype = out.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .flops = positions.absent() ? 0 : elements(out),
          .bytes = total_bytes({tokens, out}) + written(out, !positions.absent())};
}

void EmbeddingBackward::check() const {
  const Rules rules("embedding_backward", {{"tokens", tokens}, {"dy", dy}, {"dtable", dtable}, {"dpositions", dpositions}});
  rules.types(DType::Int32, {tokens});
  rules.floating(dy.dtype);
  rules.require(tokens.shape.dims() == 2, "tokens must be a matrix");
  const int64_t hidden = dy.shape.cols();
  rules.sizes(tokens.elements() * hidden, {dy});
  for (const TensorView& gradient : {dtable, dpositions}) {
    if (gradient.absent()) continue;
    rules.parameter_gradient(dy.dtype, gradient);
    rules.require(gradient.shape.dims() == 2 && gradient.shape[1] == hidden, "gradients must be as wide as dy");
  }
  rules.require(dpositions.absent() || dpositions.shape[0] >= tokens.shape[1], "dpositions must have a row for each position");
}

KernelCall EmbeddingBackward::describe() const {
  const double gradients = (dtable.absent() ? 0 : 1) + (dpositions.absent() ? 0 : 1);
  return {.kernel = "embedding_backward",
          .dtype = dy.dtype,
          .sizes = rows_of(dy),
          .bound = Bound::Memory,
          .flops = gradients * elements(dy),
          .bytes = total_bytes({tokens}) + 3 * gradients * total_bytes({dy})};
}

}  // namespace trivet::kernels
