#include "kernels/experts.h"

#include <algorithm>
#include <limits>

#include "kernels/costs.h"
#include "kernels/rules.h"
#include "kernels/verdict.h"

namespace trivet::kernels {
namespace {

void check_rule(const Rules& rules, const ExpertRule& rule, int64_t experts, int64_t chosen) {
  rules.require(rule.groups >= 1 && experts % rule.groups == 0, "the groups must divide the experts");
  rules.require(rule.groups_per_token >= 1 && rule.groups_per_token <= rule.groups, "there are not so many groups");
  rules.require(chosen >= 1 && chosen <= experts / rule.groups * rule.groups_per_token, "there are not so many experts");
}

// `ends` fit b or out, which have a matrix for each expert.
void check_ends(const Rules& rules, ConstTensorView ends, ConstTensorView matrices) {
  rules.types(DType::Int32, {ends});
  rules.require(ends.shape.dims() == 2 && matrices.shape.dims() == 3 && ends.shape[0] == matrices.shape[0],
                "there must be a matrix, and ends, for each expert");
}

void check_order(const Rules& rules, ConstTensorView order, ConstTensorView weights, DType activations) {
  rules.types(DType::Int32, {order});
  rules.types(statistics_type(activations), {weights});
  rules.sizes(order.elements(), {weights});
}

void check_swiglu(const Rules& rules, const SwiGluRule& rule) {
  rules.require(rule.limit >= 0 && rule.alpha > 0, "a limit must not be negative, and alpha must be positive");
}

// Each weight of an expert is read, or each gradient written, whatever the number of its rows.
KernelCall describe_product(const char* kernel, const char* variant, ConstTensorView a, ConstTensorView b, ConstTensorView out,
                            std::array<int64_t, 3> m_n_k, Result result, double output_bytes) {
  const auto [m, n, k] = m_n_k;
  return {.kernel = kernel,
          .variant = variant,
          .dtype = a.dtype,
          .sizes = {m, n, k, std::max(b.shape.dims() == 3 ? b.shape[0] : 1, out.shape.dims() == 3 ? out.shape[0] : 1)},
          .bound = Bound::Products,
          .result = result,
          .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .bytes = total_bytes({a, b}) + output_bytes};
}

}  // namespace

void ChooseExperts::check() const {
  const Rules rules("choose_experts", {{"logits", logits}, {"bias", bias}, {"chosen", chosen}, {"weights", weights}});
  rules.require(logits.dtype == DType::Float32 || logits.dtype == DType::Float64, "logits must be float32 or float64");
  rules.require(logits.shape.dims() == 2 && chosen.shape.dims() == 2 && chosen.shape[0] == logits.shape[0],
                "logits must be [T, E] and the choices [T, K]");
  rules.types(DType::Int32, {chosen});
  rules.types(logits.dtype, {weights});
  rules.shapes(chosen.shape, {weights});
  check_rule(rules, rule, logits.shape[1], chosen.shape[1]);
  if (bias.absent()) return;
  rules.types(logits.dtype, {bias});
  rules.sizes(logits.shape[1], {bias});
}

KernelCall ChooseExperts::describe() const {
  return {.kernel = "choose_experts",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .flops = 8 * elements(logits),
          .bytes = total_bytes({logits, bias, chosen, weights})};
}

namespace {

void check_targets(const Rules& rules, ConstTensorView targets, int64_t tokens) {
  if (targets.absent()) return;
  rules.types(DType::Int32, {targets});
  rules.sizes(tokens, {targets});
}

}  // namespace

void ChooseExpertsBackward::check() const {
  const Rules rules("choose_experts_backward", {{"logits", logits},
                                                {"chosen", chosen},
                                                {"dweights", dweights},
                                                {"counts", counts},
                                                {"targets", targets},
                                                {"dlogits", dlogits}});
  rules.require(logits.dtype == DType::Float32 || logits.dtype == DType::Float64, "logits must be float32 or float64");
  rules.floating(dlogits.dtype);
  rules.types(DType::Int32, {chosen});
  rules.types(logits.dtype, {dweights});
  rules.shapes(logits.shape, {dlogits});
  rules.shapes(chosen.shape, {dweights});
  rules.require(logits.shape.dims() == 2 && chosen.shape.dims() == 2 && chosen.shape[0] == logits.shape[0],
                "logits must be [T, E] and the choices [T, K]");
  check_rule(rules, rule, logits.shape[1], chosen.shape[1]);
  check_targets(rules, targets, logits.shape[0]);
  if (counts.absent()) return;
  rules.types(DType::Int64, {counts});
  rules.sizes(logits.shape[1] + 1, {counts});
}

KernelCall ChooseExpertsBackward::describe() const {
  return {.kernel = "choose_experts_backward",
          .dtype = logits.dtype,
          .sizes = rows_of(logits),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 12 * elements(logits),
          .bytes = total_bytes({logits, chosen, dweights, counts, targets, dlogits})};
}

void CountChoices::check() const {
  const Rules rules("count_choices", {{"chosen", chosen}, {"targets", targets}, {"counts", counts}});
  rules.types(DType::Int32, {chosen});
  rules.types(DType::Int64, {counts});
  rules.require(chosen.shape.dims() == 2 && counts.elements() > 1, "choices must be [T, K] and counts [E + 1]");
  check_targets(rules, targets, chosen.shape[0]);
}

KernelCall CountChoices::describe() const {
  return {.kernel = "count_choices",
          .dtype = chosen.dtype,
          .sizes = elements_of(chosen),
          .bound = Bound::Memory,
          .bytes = total_bytes({chosen, targets, counts})};
}

void OrderByExpert::check() const {
  const Rules rules("order_by_expert", {{"chosen", chosen}, {"order", order}, {"places", places}, {"ends", ends}});
  rules.types(DType::Int32, {chosen, order, places, ends});
  rules.require(chosen.shape.dims() == 2 && ends.shape.dims() == 2, "choices must be [T, K] and ends [E, ranges]");
  rules.shapes(chosen.shape, {places});
  rules.sizes(chosen.elements(), {order});
  rules.require(chosen.elements() <= std::numeric_limits<int32_t>::max(), "there must be fewer than 2^31 choices");
  rules.require(ends.shape[1] == static_cast<int64_t>(ranges.size()), "there must be an end for each range");
  int64_t covered = 0;
  for (const ProductCuts::Range& range : ranges) {
    rules.require(range.begin >= 0 && range.begin <= range.end && range.end <= chosen.shape[0], "ranges must be of tokens");
    covered += range.end - range.begin;
  }
  rules.require(covered == chosen.shape[0], "the ranges must cover all tokens");
}

KernelCall OrderByExpert::describe() const {
  return {.kernel = "order_by_expert",
          .dtype = chosen.dtype,
          .sizes = rows_of(chosen),
          .bound = Bound::Memory,
          .bytes = 2 * total_bytes({chosen}) + total_bytes({order, places, ends})};
}

void CountRows::check() const {
  const Rules rules("count_rows", {{"ends", ends}, {"counts", counts}});
  rules.types(DType::Int32, {ends});
  rules.types(DType::Int64, {counts});
  rules.require(ends.shape.dims() == 2 && counts.elements() == ends.shape[0], "there must be a count for each expert");
}

KernelCall CountRows::describe() const {
  return {.kernel = "count_rows",
          .dtype = ends.dtype,
          .sizes = elements_of(counts),
          .bound = Bound::Memory,
          .bytes = total_bytes({ends, counts})};
}

void GatherRows::check() const {
  const Rules rules("gather_rows", {{"x", x}, {"order", order}, {"out", out}});
  rules.floating(x.dtype);
  rules.types(x.dtype, {out});
  rules.types(DType::Int32, {order});
  rules.require(x.shape.dims() == 2 && out.shape.dims() == 2 && x.shape[1] == out.shape[1], "rows must be equally wide");
  rules.require(order.elements() == out.shape[0], "there must be a choice for each row");
  rules.require(x.shape[0] == 0 ? out.shape[0] == 0 : out.shape[0] % x.shape[0] == 0, "each token must have as many rows");
}

KernelCall GatherRows::describe() const {
  return {.kernel = "gather_rows",
          .dtype = x.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .bytes = total_bytes({out, out, order})};
}

void CombineRows::check() const {
  const Rules rules("combine_rows", {{"x", x}, {"places", places}, {"out", out}});
  rules.floating(out.dtype);
  rules.parameter_gradient(out.dtype, x);
  rules.types(DType::Int32, {places});
  rules.require(x.shape.dims() == 2 && out.shape.dims() == 2 && x.shape[1] == out.shape[1], "rows must be equally wide");
  rules.require(places.shape.dims() == 2 && places.shape[0] == out.shape[0] && places.elements() == x.shape[0],
                "there must be a place for each row");
}

KernelCall CombineRows::describe() const {
  return {.kernel = "combine_rows",
          .dtype = out.dtype,
          .sizes = rows_of(x),
          .bound = Bound::Memory,
          .flops = elements(x),
          .bytes = total_bytes({x, places, out})};
}

void WeightedSwiGlu::check() const {
  const Rules rules("weighted_swiglu", {{"gate_up", gate_up}, {"weights", weights}, {"order", order}, {"y", y}});
  rules.floating(y.dtype);
  rules.types(y.dtype, {gate_up});
  check_order(rules, order, weights, y.dtype);
  rules.require(y.shape.dims() == 2 && order.elements() == y.shape[0], "there must be a choice for each row");
  rules.require(gate_up.shape.dims() == 2 && gate_up.shape[0] == y.shape[0] && gate_up.shape[1] == 2 * y.shape[1],
                "gate_up must be twice as wide as y");
  check_swiglu(rules, rule);
}

KernelCall WeightedSwiGlu::describe() const {
  return {.kernel = "weighted_swiglu",
          .dtype = y.dtype,
          .sizes = rows_of(y),
          .bound = Bound::Memory,
          .flops = 5 * elements(y),
          .bytes = total_bytes({gate_up, weights, order, y})};
}

void WeightedSwiGluBackward::check() const {
  const Rules rules("weighted_swiglu_backward", {{"dy", dy},
                                                 {"gate_up", gate_up},
                                                 {"weights", weights},
                                                 {"order", order},
                                                 {"dgate_up", dgate_up},
                                                 {"dweights", dweights}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {gate_up, dgate_up});
  rules.shapes(gate_up.shape, {dgate_up});
  check_order(rules, order, weights, dy.dtype);
  check_order(rules, order, dweights, dy.dtype);
  rules.require(dy.shape.dims() == 2 && order.elements() == dy.shape[0], "there must be a choice for each row");
  rules.require(gate_up.shape.dims() == 2 && gate_up.shape[0] == dy.shape[0] && gate_up.shape[1] == 2 * dy.shape[1],
                "gate_up must be twice as wide as dy");
  check_swiglu(rules, rule);
  rules.require((ends.size() & (ends.size() - 1)) == 0, "the number of chunks must be a power of two");
  rules.require(ends.empty() || (std::ranges::is_sorted(ends) && ends.front() >= 0 && ends.back() == dy.shape[1]),
                "the ends of the chunks must be sorted and the last one must be the width of dy");
}

KernelCall WeightedSwiGluBackward::describe() const {
  return {.kernel = "weighted_swiglu_backward",
          .dtype = dy.dtype,
          .sizes = rows_of(dy),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 13 * elements(dy),
          .bytes = total_bytes({dy, gate_up, weights, order, dgate_up, dweights})};
}

void AddExpertBias::check() const {
  const Rules rules("add_expert_bias", {{"bias", bias}, {"ends", ends}, {"out", out}});
  rules.floating(out.dtype);
  rules.types(out.dtype, {bias});
  rules.types(DType::Int32, {ends});
  rules.require(bias.shape.dims() == 2 && out.shape.dims() == 2 && bias.shape[1] == out.shape[1],
                "bias and out must be equally wide");
  rules.require(ends.shape.dims() == 2 && ends.shape[0] == bias.shape[0], "there must be ends for each expert");
}

KernelCall AddExpertBias::describe() const {
  return {.kernel = "add_expert_bias",
          .dtype = out.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = total_bytes({bias, ends, out, out})};
}

void SpreadWeights::check() const {
  const Rules rules("spread_weights", {{"weights", weights}, {"chosen", chosen}, {"out", out}});
  rules.floating(out.dtype);
  rules.types(statistics_type(out.dtype), {weights});
  rules.types(DType::Int32, {chosen});
  rules.shapes(chosen.shape, {weights});
  rules.require(chosen.shape.dims() == 2 && out.shape.dims() == 2 && chosen.shape[0] == out.shape[0],
                "weights must be [T, K] and out [T, E]");
}

KernelCall SpreadWeights::describe() const {
  return {.kernel = "spread_weights",
          .dtype = out.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .bytes = total_bytes({weights, chosen, out})};
}

void AddChosen::check() const {
  const Rules rules("add_chosen", {{"x", x}, {"chosen", chosen}, {"out", out}});
  rules.floating(x.dtype);
  rules.types(statistics_type(x.dtype), {out});
  rules.types(DType::Int32, {chosen});
  rules.shapes(chosen.shape, {out});
  rules.require(chosen.shape.dims() == 2 && x.shape.dims() == 2 && chosen.shape[0] == x.shape[0],
                "x must be [T, E] and out [T, K]");
}

KernelCall AddChosen::describe() const {
  return {.kernel = "add_chosen",
          .dtype = x.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = elements(out),
          .bytes = total_bytes({chosen, out, out, out})};
}

void GroupedMatmul::check() const {
  const Rules rules("grouped_matmul", {{"a", a}, {"b", b}, {"ends", ends}, {"out", out}});
  rules.floating(a.dtype);
  rules.types(a.dtype, {b});
  rules.parameter_gradient(a.dtype, out);
  check_ends(rules, ends, b);
  rules.require(a.shape.dims() == 2 && out.shape.dims() == 2 && a.shape[0] == out.shape[0], "rows of a and out differ");
  rules.require(a.shape[1] == b.shape[transpose_b ? 2 : 1], "columns of a and rows of op(b) differ");
  rules.require(out.shape[1] == b.shape[transpose_b ? 1 : 2], "columns of out and op(b) differ");
  rules.require(!cuts || cuts->row_ends.empty(), "rows cannot be cut");
}

KernelCall GroupedMatmul::describe() const {
  const char* const kind = accumulate ? (transpose_b ? "nt+" : "nn+") : transpose_b ? "nt" : "nn";
  return describe_product("grouped_matmul", kind, a, b, out, {out.shape[0], out.shape[1], a.shape[1]},
                          transpose_b ? Result::Other : Result::InputGradient, written(out, accumulate) + total_bytes({ends}));
}

void GroupedGradient::check() const {
  const Rules rules("grouped_gradient", {{"a", a}, {"b", b}, {"ends", ends}, {"out", out}});
  rules.floating(a.dtype);
  rules.types(a.dtype, {b});
  rules.parameter_gradient(a.dtype, out);
  check_ends(rules, ends, out);
  rules.require(a.shape.dims() == 2 && b.shape.dims() == 2 && a.shape[0] == b.shape[0], "rows of a and b differ");
  rules.require(a.shape[1] == out.shape[1] && b.shape[1] == out.shape[2], "columns of a and b must be those of out");
  rules.require(leaves >= 1 && (leaves & (leaves - 1)) == 0 && ends.shape[1] % leaves == 0,
                "the number of leaves must be a power of two that divides the ranges");
  rules.require(!cuts || cuts->leaves.empty(), "the ends say what the leaves are");
}

KernelCall GroupedGradient::describe() const {
  return describe_product("grouped_gradient", accumulate ? "tn+" : "tn", a, b, out, {a.shape[1], b.shape[1], a.shape[0]},
                          Result::WeightGradient, written(out, accumulate) + total_bytes({ends}));
}

void AddGated::check() const {
  const Rules rules("add_gated", {{"x", x}, {"logits", logits}, {"y", y}});
  rules.floating(y.dtype);
  rules.types(y.dtype, {x});
  rules.shapes(y.shape, {x});
  rules.types(statistics_type(y.dtype), {logits});
  rules.require(y.shape.dims() == 2 && logits.elements() == y.shape[0], "there must be a logit for each row");
}

KernelCall AddGated::describe() const {
  return {.kernel = "add_gated",
          .dtype = y.dtype,
          .sizes = rows_of(y),
          .bound = Bound::Memory,
          .flops = 2 * elements(y),
          .bytes = total_bytes({x, logits, y, y})};
}

void AddGatedBackward::check() const {
  const Rules rules("add_gated_backward", {{"dy", dy}, {"x", x}, {"logits", logits}, {"dx", dx}, {"dlogits", dlogits}});
  rules.floating(dy.dtype);
  rules.types(dy.dtype, {x, dx, dlogits});
  rules.shapes(dy.shape, {x, dx});
  rules.types(statistics_type(dy.dtype), {logits});
  rules.require(dy.shape.dims() == 2 && logits.elements() == dy.shape[0] && dlogits.elements() == dy.shape[0],
                "there must be a logit for each row");
}

KernelCall AddGatedBackward::describe() const {
  return {.kernel = "add_gated_backward",
          .dtype = dy.dtype,
          .sizes = rows_of(dy),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 3 * elements(dy),
          .bytes = total_bytes({dy, x, logits, dx, dlogits})};
}

void BalanceExperts::check() const {
  const Rules rules("balance_experts", {{"bias", bias}, {"counts", counts}, {"verdict", verdict}});
  rules.types(DType::Float32, {bias});
  rules.types(DType::Int64, {counts});
  rules.require(first >= 0 && first + bias.elements() <= counts.elements(), "there must be a count for each bias");
  if (verdict.absent()) return;
  rules.types(DType::Float64, {verdict});
  rules.sizes(kVerdictSize, {verdict});
}

KernelCall BalanceExperts::describe() const {
  return {.kernel = "balance_experts",
          .dtype = bias.dtype,
          .sizes = elements_of(bias),
          .bound = Bound::Memory,
          .flops = elements(bias),
          .bytes = total_bytes({bias, bias, counts})};
}

}  // namespace trivet::kernels
