#include "kernels/products.h"

#include <algorithm>

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

void check_pieces(const Rules& rules, const std::vector<int64_t>& ends, int64_t size) {
  if (ends.empty()) return;
  rules.require(std::is_sorted(ends.begin(), ends.end()) && ends.front() >= 0 && ends.back() == size,
                "the ends of the pieces must be sorted and the last one must be the size of out");
}

void check_cuts(const Rules& rules, const ProductCuts& cuts, const Shape& m_n_k) {
  check_pieces(rules, cuts.row_ends, m_n_k[0]);
  check_pieces(rules, cuts.col_ends, m_n_k[1]);
  rules.require((cuts.leaves.size() & (cuts.leaves.size() - 1)) == 0, "the number of leaves must be a power of two");
  for (const auto& leaf : cuts.leaves)
    for (const ProductCuts::Range& range : leaf)
      rules.require(range.begin >= 0 && range.begin <= range.end && range.end <= m_n_k[2],
                    "every range of a leaf must be within [0, K)");
}

void check_gelu(const Rules& rules, const Matmul& args) {
  const bool forward = !args.activated.absent(), backward = !args.before_gelu.absent();
  if (!forward && !backward) return;
  const ConstTensorView other = forward ? ConstTensorView(args.activated) : args.before_gelu;
  rules.require(!forward || !backward, "activated and before_gelu exclude each other");
  rules.require(!args.accumulate, "gelu and accumulate exclude each other");
  rules.require(!backward || args.bias.absent(), "before_gelu and bias exclude each other");
  rules.types(args.a.dtype, {args.out, other});
  rules.shapes(args.out.shape, {other});
}

std::string_view variant_of(const Matmul& a) {
  static constexpr std::string_view names[2][2][2] = {{{"nn", "nn+"}, {"nt", "nt+"}}, {{"tn", "tn+"}, {"tt", "tt+"}}};
  if (!a.activated.absent()) return a.transpose_b ? "nt gelu" : "nn gelu";
  if (!a.before_gelu.absent()) return a.transpose_b ? "nt gelu backward" : "nn gelu backward";
  return names[a.transpose_a][a.transpose_b][a.accumulate];
}

}  // namespace

void Matmul::check() const {
  const Rules rules("matmul",
                    {{"a", a}, {"b", b}, {"out", out}, {"bias", bias}, {"activated", activated}, {"before_gelu", before_gelu}});
  const Shape &left = a.shape, &right = b.shape, &product = out.shape;
  rules.floating(a.dtype);
  rules.types(a.dtype, {b});
  rules.parameter_gradient(a.dtype, out);
  rules.require(left.dims() == 2 && right.dims() == 2 && product.dims() == 2, "a, b and out must be matrices");
  rules.require(left[transpose_a ? 1 : 0] == product[0], "rows of op(a) and out differ");
  rules.require(right[transpose_b ? 0 : 1] == product[1], "columns of op(b) and out differ");
  rules.require(left[transpose_a ? 0 : 1] == right[transpose_b ? 1 : 0], "columns of op(a) and rows of op(b) differ");
  if (cuts) check_cuts(rules, *cuts, {product[0], product[1], left[transpose_a ? 0 : 1]});
  check_gelu(rules, *this);
  if (bias.absent()) return;
  rules.require(!accumulate, "bias and accumulate exclude each other");
  rules.types(a.dtype, {bias});
  rules.sizes(product[1], {bias});
}

KernelCall Matmul::describe() const {
  const double inner = static_cast<double>(a.shape[transpose_a ? 0 : 1]);
  return {.kernel = "matmul",
          .variant = variant_of(*this),
          .dtype = a.dtype,
          .sizes = {out.shape.rows(), out.shape.cols(), transpose_a ? a.shape.rows() : a.shape.cols()},
          .bound = Bound::Products,
          .result = transpose_a   ? Result::WeightGradient
                    : transpose_b ? Result::Other
                                  : Result::InputGradient,
          .flops = 2 * elements(out) * inner + 8 * elements(activated) + 14 * elements(before_gelu),
          .bytes = total_bytes({a, b, bias, activated, before_gelu}) + written(out, accumulate)};
}

void AddBias::check() const {
  const Rules rules("add_bias", {{"x", x}, {"bias", bias}, {"out", out}});
  rules.floating(out.dtype);
  rules.parameter_gradient(out.dtype, x);
  rules.shapes(out.shape, {x});
  if (bias.absent()) return;
  rules.types(out.dtype, {bias});
  rules.sizes(out.shape.cols(), {bias});
}

KernelCall AddBias::describe() const {
  return {.kernel = "add_bias",
          .dtype = x.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .flops = elements(bias.absent() ? bias : x),
          .bytes = total_bytes({x, bias, out})};
}

void BiasGradient::check() const {
  const Rules rules("bias_gradient", {{"dy", dy}, {"dbias", dbias}});
  rules.floating(dy.dtype);
  rules.parameter_gradient(dy.dtype, dbias);
  rules.sizes(dy.shape.cols(), {dbias});
}

KernelCall BiasGradient::describe() const {
  return {.kernel = "bias_gradient",
          .dtype = dy.dtype,
          .sizes = rows_of(dy),
          .bound = Bound::Memory,
          .result = Result::WeightGradient,
          .flops = elements(dy),
          .bytes = total_bytes({dy}) + written(dbias, accumulate)};
}

}  // namespace trivet::kernels
