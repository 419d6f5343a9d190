#include "kernels/attention.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

// Returns D.
int64_t check_heads(const Rules& rules, const ConstTensorView& qkv, int64_t heads, int64_t key_value_heads) {
  rules.floating(qkv.dtype);
  rules.require(qkv.shape.dims() == 3, "qkv must be [B, S, (N + 2G) D]");
  rules.require(heads > 0 && key_value_heads > 0 && heads % key_value_heads == 0,
                "the number of key/value heads must divide the number of heads");
  rules.require(qkv.shape[2] % (heads + 2 * key_value_heads) == 0, "the width of qkv must be a multiple of N + 2G");
  return qkv.shape[2] / (heads + 2 * key_value_heads);
}

// Causality leaves half of the scores, and a window W a band of them: S W less the half square that the first queries lack.
template <typename Args>
double attention_flops(const Args& a) {
  const double sequence = static_cast<double>(a.qkv.shape[1]), window = static_cast<double>(a.window);
  const double head_size = static_cast<double>(a.head_size());
  double scores = sequence * sequence;
  if (a.causal) scores = a.hides_early_keys() ? sequence * window - window * window / 2 : scores / 2;
  return 4 * static_cast<double>(a.qkv.shape[0]) * scores * static_cast<double>(a.heads) * head_size;
}

template <typename Args>
void check_scores(const Rules& rules, const Args& a) {
  rules.require(a.window == 0 || (a.window > 0 && a.causal), "a window needs causal attention");
  rules.require(a.scale >= 0 && a.soft_cap >= 0, "scale and soft_cap must not be negative");
  if (a.documents.absent()) return;
  rules.require(a.causal, "documents need causal attention");
  rules.types(DType::Int32, {a.documents});
  rules.sizes(a.qkv.shape[0] * a.qkv.shape[1], {a.documents});
}

// B, S, N, G, D
template <typename Args>  // Attention, AttentionBackward
Sizes sizes_of(const Args& a) {
  const int64_t heads = a.heads + 2 * a.key_value_heads;
  return {a.qkv.shape[0], a.qkv.shape[1], a.heads, a.key_value_heads, a.qkv.shape[2] / heads};
}

template <typename Args>
std::string_view variant_of(const Args& a) {
  if (a.soft_cap > 0) return a.dropout.rate > 0 ? "capped, drops" : "capped";
  if (a.hides_early_keys()) return a.dropout.rate > 0 ? "window, drops" : "window";
  if (a.causal) return a.dropout.rate > 0 ? "drops" : "";
  return a.dropout.rate > 0 ? "sees all, drops" : "sees all";
}

}  // namespace

void Rotary::check() const {
  const Rules rules("rotary", {{"qkv", qkv}, {"positions", positions}});
  const int64_t head_size = check_heads(rules, qkv, heads, key_value_heads);
  rules.require(2 * pairs() <= head_size, "a head has too few elements for so many frequencies");
  if (positions.absent()) return;
  rules.types(DType::Int32, {positions});
  rules.sizes(qkv.shape[0] * qkv.shape[1], {positions});
}

KernelCall Rotary::describe() const {
  const double share = static_cast<double>((heads + key_value_heads) * 2 * pairs()) / static_cast<double>(qkv.shape[2]);
  return {.kernel = "rotary",
          .dtype = qkv.dtype,
          .sizes = rows_of(qkv),
          .bound = Bound::Memory,
          .flops = 3 * share * elements(qkv),
          .bytes = 2 * share * total_bytes({qkv})};
}

void Attention::check() const {
  const Rules rules("attention", {{"qkv", qkv}, {"out", out}, {"log_sum_exp", log_sum_exp}, {"documents", documents}});
  const int64_t head_size = check_heads(rules, qkv, heads, key_value_heads);
  const int64_t tokens = qkv.shape[0] * qkv.shape[1];
  rules.types(qkv.dtype, {out});
  rules.types(statistics_type(qkv.dtype), {log_sum_exp});
  rules.sizes(tokens * heads * head_size, {out});
  rules.sizes(tokens * heads, {log_sum_exp});
  check_scores(rules, *this);
  check_dropout(rules, dropout, qkv);
}

KernelCall Attention::describe() const {
  return {.kernel = "attention",
          .variant = variant_of(*this),
          .dtype = qkv.dtype,
          .sizes = sizes_of(*this),
          .bound = Bound::Attention,
          .flops = attention_flops(*this),
          .bytes = total_bytes({qkv, out, log_sum_exp})};
}

void AttentionBackward::check() const {
  const Rules rules(
      "attention_backward",
      {{"dout", dout}, {"qkv", qkv}, {"out", out}, {"log_sum_exp", log_sum_exp}, {"dqkv", dqkv}, {"documents", documents}});
  const int64_t head_size = check_heads(rules, qkv, heads, key_value_heads);
  const int64_t tokens = qkv.shape[0] * qkv.shape[1];
  rules.types(qkv.dtype, {out, dout, dqkv});
  rules.types(statistics_type(qkv.dtype), {log_sum_exp});
  rules.sizes(tokens * heads * head_size, {out, dout});
  rules.sizes(tokens * heads, {log_sum_exp});
  rules.sizes(qkv.elements(), {dqkv});
  check_scores(rules, *this);
  check_dropout(rules, dropout, qkv);
}

KernelCall AttentionBackward::describe() const {
  return {.kernel = "attention_backward",
          .variant = variant_of(*this),
          .dtype = qkv.dtype,
          .sizes = sizes_of(*this),
          .bound = Bound::Attention,
          .result = Result::InputGradient,
          .flops = 2.5 * attention_flops(*this),
          .bytes = total_bytes({dout, qkv, out, log_sum_exp, dqkv})};
}

}  // namespace trivet::kernels
