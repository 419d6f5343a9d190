#include "kernels/attention.h"

#include <algorithm>

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

// The pairs of a query and a key at least `distance` before it, with queries and keys of these ranges.
double pairs_apart(const TokenRange& queries, const TokenRange& keys, int64_t distance) {
  const int64_t first = keys.begin + distance - 1, most = keys.count();  // query i has min(i - first, most) of them
  const auto before = [&](int64_t end) {                                 // those of all queries before `end`
    const int64_t last = std::max<int64_t>(end - 1 - first, 0), growing = std::min(last, most);
    return static_cast<double>(growing) * static_cast<double>(growing + 1) / 2 + static_cast<double>((last - growing) * most);
  };
  return before(queries.end) - before(queries.begin);
}

// The scores of queries and keys of these tokens that causality and the window leave.
template <typename Args>
double scores_of(const Args& a, const OwnTokens& queries, const OwnTokens& keys) {
  double scores = 0;
  for (const TokenRange& of_queries : queries.ranges)
    for (const TokenRange& of_keys : keys.ranges) {
      scores += a.causal ? pairs_apart(of_queries, of_keys, 0) : static_cast<double>(of_queries.count() * of_keys.count());
      if (a.hides_early_keys()) scores -= pairs_apart(of_queries, of_keys, a.window);
    }
  return scores;
}

// FLOPs of one product with the scores of own queries, of own keys, and of both.
struct OwnWork {
  double queries = 0, keys = 0, both = 0;

  template <typename Args>
  explicit OwnWork(const Args& a) {
    const OwnTokens all{{{{0, a.qkv.shape[1]}, {}}}};
    const double of_score = 2.0 * static_cast<double>(a.qkv.shape[0] * a.heads * a.head_size());
    queries = of_score * scores_of(a, a.own, all);
    keys = of_score * scores_of(a, all, a.own);
    both = of_score * scores_of(a, a.own, a.own);
  }
};

// Backward computes scores and their gradients where one of both is wanted, dQ of queries, dK and dV of keys.
double products_of(const OwnWork& own) { return 2 * (own.queries + own.keys - own.both) + own.queries + 2 * own.keys; }

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
  rules.require(a.own.ranges[0].end <= a.qkv.shape[1] && a.own.ranges[1].end <= a.qkv.shape[1], "own tokens must exist");
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
  rules.require(first >= 0 && (first == 0 || positions.absent()),
                "`first` must not be negative, and is not for given positions");
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
          .flops = own.all() ? attention_flops(*this) : 2 * OwnWork(*this).queries,
          .bytes = total_bytes({qkv, out, log_sum_exp})};
}

void MergeAttention::check() const {
  const Rules rules("merge_attention",
                    {{"more", more}, {"more_log_sum_exp", more_log_sum_exp}, {"out", out}, {"log_sum_exp", log_sum_exp}});
  rules.floating(more.dtype);
  rules.require(more.shape.dims() == 3 && heads > 0 && more.shape[2] % heads == 0, "more must be [B, S, N D]");
  rules.types(statistics_type(more.dtype), {more_log_sum_exp, out, log_sum_exp});
  rules.sizes(more.elements(), {out});
  rules.sizes(more.shape[0] * more.shape[1] * heads, {more_log_sum_exp, log_sum_exp});
}

KernelCall MergeAttention::describe() const {
  return {.kernel = "merge_attention",
          .dtype = more.dtype,
          .sizes = rows_of(more),
          .bound = Bound::Memory,
          .flops = 3 * elements(more),
          .bytes = total_bytes({more, out, out, more_log_sum_exp, log_sum_exp, log_sum_exp})};
}

void AttentionSinks::check() const {
  const Rules rules("attention_sinks", {{"sinks", sinks}, {"out", out}, {"log_sum_exp", log_sum_exp}});
  rules.floating(out.dtype);
  rules.types(out.dtype, {sinks});
  rules.types(statistics_type(out.dtype), {log_sum_exp});
  rules.require(out.shape.dims() == 3 && heads() > 0 && out.shape[2] % heads() == 0, "out must be [B, S, N D]");
  rules.sizes(out.shape[0] * out.shape[1] * heads(), {log_sum_exp});
}

KernelCall AttentionSinks::describe() const {
  return {.kernel = "attention_sinks",
          .dtype = out.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = total_bytes({sinks, out, out, log_sum_exp, log_sum_exp})};
}

void AttentionSinksBackward::check() const {
  const Rules rules("attention_sinks_backward",
                    {{"dout", dout}, {"out", out}, {"log_sum_exp", log_sum_exp}, {"sinks", sinks}, {"dsinks", dsinks}});
  rules.floating(out.dtype);
  rules.types(out.dtype, {dout, sinks, dsinks});
  rules.types(statistics_type(out.dtype), {log_sum_exp});
  rules.require(out.shape.dims() == 3 && heads() > 0 && out.shape[2] % heads() == 0, "out must be [B, S, N D]");
  rules.sizes(out.elements(), {dout});
  rules.sizes(out.shape[0] * out.shape[1] * heads(), {log_sum_exp, dsinks});
}

KernelCall AttentionSinksBackward::describe() const {
  return {.kernel = "attention_sinks_backward",
          .dtype = out.dtype,
          .sizes = rows_of(out),
          .bound = Bound::Memory,
          .result = Result::InputGradient,
          .flops = 2 * elements(out),
          .bytes = total_bytes({dout, out, log_sum_exp, sinks, dsinks})};
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
          .flops = own.all() ? 2.5 * attention_flops(*this) : products_of(OwnWork(*this)),
          .bytes = total_bytes({dout, qkv, out, log_sum_exp, dqkv})};
}

}  // namespace trivet::kernels
