#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/workspace.h"
#include "tests/kernels/host_tensor.h"
#include "tests/support/golden_attention.h"

namespace trivet::kernels::attention_test {
namespace {

struct Case {
  int64_t sequences, tokens, heads, key_value_heads, head_size;
  DType dtype = DType::Float32;
  float dropout = 0;
  bool causal = true;
  int64_t window = 0;
  double scale = 0, soft_cap = 0;
  std::vector<int64_t> documents = {};  // their lengths in each sequence; the rest is padding. Empty: a sequence is one

  double score_scale() const { return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_size)); }
  // Query i sees the keys before keys_of(i), from first_key(i) on.
  int64_t keys_of(int64_t i) const { return causal ? i + 1 : tokens; }
  int64_t first_key(int64_t i) const { return std::max(document_of(i), window > 0 ? i - window + 1 : 0); }
  // The first token of token i's document; for padding, `tokens`.
  int64_t document_of(int64_t i) const {
    int64_t begin = 0;
    for (const int64_t length : documents) {
      if (i < begin + length) return begin;
      begin += length;
    }
    return documents.empty() ? 0 : tokens;
  }
};

std::string describe(const Case& c) {
  std::ostringstream text;
  text << "B " << c.sequences << ", S " << c.tokens << ", N " << c.heads << ", G " << c.key_value_heads << ", D " << c.head_size
       << ", " << name_of(c.dtype) << ", dropout " << c.dropout << (c.causal ? ", causal" : "") << ", window " << c.window
       << ", scale " << c.scale << ", cap " << c.soft_cap << ", documents " << c.documents.size();
  return text.str();
}

struct Problem {
  Case c;
  HostTensor qkv, dout, out, log_sum_exp, dqkv;
  std::vector<int32_t> documents;
  OwnTokens own;

  explicit Problem(const Case& chosen)
      : c(chosen),
        qkv(HostTensor::random(c.dtype, {c.sequences, c.tokens, width()}, 3)),
        dout(HostTensor::random(c.dtype, {c.sequences, c.tokens, c.heads * c.head_size}, 4)),
        out(HostTensor::poisoned(c.dtype, {c.sequences, c.tokens, c.heads * c.head_size})),
        log_sum_exp(HostTensor::poisoned(c.dtype == DType::Float64 ? DType::Float64 : DType::Float32,
                                         {c.sequences, c.heads, c.tokens})),
        dqkv(HostTensor::poisoned(c.dtype, {c.sequences, c.tokens, width()})) {
    for (int64_t e = 0; e < qkv.elements(); ++e) qkv.set(e, 2 * qkv.at(e));  // so that scores differ
    if (c.documents.empty()) return;
    for (int64_t row = 0; row < c.sequences * c.tokens; ++row)
      documents.push_back(static_cast<int32_t>(c.document_of(row % c.tokens)));
  }
  void scale_scores(double scale) {
    for (int64_t e = 0; e < qkv.elements(); ++e)
      if (e % width() < (c.heads + c.key_value_heads) * c.head_size) qkv.set(e, scale * qkv.at(e));  // not the values
  }
  int64_t width() const { return (c.heads + 2 * c.key_value_heads) * c.head_size; }
  DropoutSite site() const { return {.rate = c.dropout, .key = random_key(5, "attention"), .step = 9, .first_sample = 2}; }
  ConstTensorView documents_view() const {
    if (documents.empty()) return {};
    return {documents.data(), DType::Int32, {c.sequences, c.tokens}};
  }
  Attention forward_arguments() {
    return {.qkv = qkv.view(),
            .out = out.view(),
            .log_sum_exp = log_sum_exp.view(),
            .heads = c.heads,
            .key_value_heads = c.key_value_heads,
            .causal = c.causal,
            .window = c.window,
            .scale = c.scale,
            .soft_cap = c.soft_cap,
            .dropout = site(),
            .documents = documents_view(),
            .own = own};
  }
  AttentionBackward backward_arguments() {
    return {.dout = dout.view(),
            .qkv = qkv.view(),
            .out = out.view(),
            .log_sum_exp = log_sum_exp.view(),
            .dqkv = dqkv.view(),
            .heads = c.heads,
            .key_value_heads = c.key_value_heads,
            .causal = c.causal,
            .window = c.window,
            .scale = c.scale,
            .soft_cap = c.soft_cap,
            .dropout = site(),
            .documents = documents_view(),
            .own = own};
  }
  void forward(int threads) { cpu::compute(forward_arguments(), threads); }
  void backward(int threads) { cpu::compute(backward_arguments(), threads); }

  int64_t query(int64_t b, int64_t s, int64_t n, int64_t d) const { return (b * c.tokens + s) * width() + n * c.head_size + d; }
  int64_t key(int64_t b, int64_t s, int64_t n, int64_t d) const {
    return query(b, s, c.heads + n / (c.heads / c.key_value_heads), d);
  }
  int64_t value(int64_t b, int64_t s, int64_t n, int64_t d) const {
    return query(b, s, c.heads + c.key_value_heads + n / (c.heads / c.key_value_heads), d);
  }
  int64_t output(int64_t b, int64_t s, int64_t n, int64_t d) const {
    return ((b * c.tokens + s) * c.heads + n) * c.head_size + d;
  }

  double factor(int64_t b, int64_t n, int64_t i, int64_t j) const {
    if (c.dropout == 0) return 1;
    const uint64_t element = static_cast<uint64_t>((n * c.tokens + i) * c.tokens + j);
    const PhiloxBlock block = philox(site().key, element / 4, (uint64_t{9} << 32) + 2 + static_cast<uint64_t>(b));
    return unit_float(block[element % 4]) < c.dropout ? 0 : 1 / (1 - static_cast<double>(c.dropout));
  }
};

struct Reference {
  std::vector<double> out, log_sum_exp, dqkv;
};

std::vector<double> values_of(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t e = 0; e < tensor.elements(); ++e) values.push_back(tensor.at(e));
  return values;
}

// The definition of attention, on a problem's inputs as doubles.
class Definition {
 public:
  explicit Definition(const Problem& problem) : p_(problem), qkv_(values_of(problem.qkv)), dout_(values_of(problem.dout)) {}

  Reference compute() const {
    const Case& c = p_.c;
    Reference r{std::vector<double>(p_.out.elements()), std::vector<double>(p_.log_sum_exp.elements()),
                std::vector<double>(p_.qkv.elements())};
    for (int64_t b = 0; b < c.sequences; ++b)
      for (int64_t n = 0; n < c.heads; ++n)
        for (int64_t i = 0; i < c.tokens; ++i) add_query(b, n, i, r);
    return r;
  }

 private:
  double score(int64_t b, int64_t n, int64_t i, int64_t j) const {
    const Case& c = p_.c;
    const double *query = &qkv_[p_.query(b, i, n, 0)], *key = &qkv_[p_.key(b, j, n, 0)];
    double sum = 0;
    for (int64_t d = 0; d < c.head_size; ++d) sum += query[d] * key[d];
    return c.soft_cap > 0 ? c.soft_cap * std::tanh(sum * c.score_scale() / c.soft_cap) : sum * c.score_scale();
  }
  // The derivative of a capped score by what its cap reads.
  double slope(double capped_score) const { return 1 - capped_score * capped_score / (p_.c.soft_cap * p_.c.soft_cap); }
  // The probabilities of query i of head n before dropout, followed by their log-sum-exp.
  std::vector<double> probabilities(int64_t b, int64_t n, int64_t i) const {
    const Case& c = p_.c;
    std::vector<double> p;
    if (c.document_of(i) == c.tokens) return std::vector<double>(c.keys_of(i) + 1);  // padding
    double sum = 0, largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < c.keys_of(i); ++j) {
      const bool seen = j >= c.first_key(i);
      p.push_back(seen ? score(b, n, i, j) : -std::numeric_limits<double>::infinity());
      largest = std::max(largest, p.back());
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    for (double& x : p) x /= sum;
    p.push_back(largest + std::log(sum));
    return p;
  }
  // Adds what query i of head n contributes to the results.
  void add_query(int64_t b, int64_t n, int64_t i, Reference& r) const {
    const Case& c = p_.c;
    const std::vector<double> prob = probabilities(b, n, i);
    r.log_sum_exp[(b * c.heads + n) * c.tokens + i] = prob.back();
    std::vector<double> dprob(c.keys_of(i));
    double row_sum = 0;
    const int64_t output = p_.output(b, i, n, 0), query = p_.query(b, i, n, 0);
    for (int64_t j = 0; j < c.keys_of(i); ++j) {
      const double factor = p_.factor(b, n, i, j), dropped = prob[j] * factor;
      const int64_t value = p_.value(b, j, n, 0);
      for (int64_t d = 0; d < c.head_size; ++d) {
        r.out[output + d] += dropped * qkv_[value + d];
        r.dqkv[value + d] += dropped * dout_[output + d];
        dprob[j] += dout_[output + d] * qkv_[value + d] * factor;
      }
      row_sum += prob[j] * dprob[j];
    }
    for (int64_t j = 0; j < c.keys_of(i); ++j) {
      const double by_cap = c.soft_cap > 0 ? slope(score(b, n, i, j)) : 1;
      const double dproduct = prob[j] * (dprob[j] - row_sum) * by_cap * c.score_scale();
      const int64_t key = p_.key(b, j, n, 0);
      for (int64_t d = 0; d < c.head_size; ++d) {
        r.dqkv[query + d] += dproduct * qkv_[key + d];
        r.dqkv[key + d] += dproduct * qkv_[query + d];
      }
    }
  }

  const Problem& p_;
  std::vector<double> qkv_, dout_;
};

// Values are at most 2, and so are outputs, which are averages of values; dO is at most 1. Scores have an absolute error of
// about D u |q| |k| / sqrt(D) <= 4 sqrt(D) u, which is the relative error of a probability; sums over keys and heads add S u at
// most. Outputs are rounded once to dtype. The backward pass reads the rounded output: D_i = sum(dO O) is off by up to 2 D
// half-units in the worst case, and typically by sqrt(D) of them.
double forward_tolerance(const Case& c, double score_scale) {
  const double u = c.dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  return (8 * score_scale * std::sqrt(static_cast<double>(c.head_size)) + static_cast<double>(c.tokens)) * u * 2 +
         2 * half_unit(c.dtype);
}

// Queries and keys may be multiplied by `scale`: the errors of scores, and with them those of probabilities, grow with its
// square.
void expect_matches_double_reference(const Case& c, double scale = 1) {
  Problem problem(c);
  problem.scale_scores(scale);
  problem.forward(2);
  problem.backward(2);
  const Reference expected = Definition(problem).compute();
  const double forward = forward_tolerance(c, scale * scale);
  for (int64_t e = 0; e < problem.out.elements(); ++e)
    ASSERT_NEAR(problem.out.at(e), expected.out[e], forward * (c.dropout > 0 ? 2 : 1)) << describe(c) << " out " << e;
  for (int64_t e = 0; e < problem.log_sum_exp.elements(); ++e) {
    const double u = c.dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
    ASSERT_NEAR(problem.log_sum_exp.at(e), expected.log_sum_exp[e],
                u * (8 * scale * scale * std::sqrt(static_cast<double>(c.head_size)) + static_cast<double>(c.tokens) +
                     std::abs(expected.log_sum_exp[e])))
        << describe(c);
  }
  double largest = 0;
  for (double x : expected.dqkv) largest = std::max(largest, std::abs(x));
  const double backward = forward * 4 * (std::sqrt(static_cast<double>(c.head_size)) + largest);
  for (int64_t e = 0; e < problem.dqkv.elements(); ++e)
    ASSERT_NEAR(problem.dqkv.at(e), expected.dqkv[e], backward) << describe(c) << " dqkv " << e;
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (const auto& [dropout, causal] : {std::pair{0.0f, true}, {0.25f, true}, {0.0f, false}, {0.25f, false}})
      for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{2, 3, 2, 1, 5}, Case{1, 65, 4, 2, 8}, Case{2, 64, 2, 2, 32},
                            Case{1, 129, 3, 1, 20}, Case{1, 71, 2, 2, 64}, Case{2, 144, 4, 2, 32}, Case{1, 80, 1, 1, 64},
                            Case{1, 33, 1, 1, 256}, Case{3, 17, 6, 3, 40}}) {
        list.push_back(c);
        list.back().dtype = dtype;
        list.back().dropout = dropout;
        list.back().causal = causal;
      }
  return list;
}

// Windows that are shorter than a tile, as long as one, and longer; that end within a tile, and at its edge.
std::vector<Case> cases_with_windows() {
  std::vector<Case> list;
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (float dropout : {0.0f, 0.25f})
      for (const Case& c : {Case{1, 40, 2, 1, 8}, Case{1, 200, 2, 1, 20}, Case{1, 208, 2, 2, 32}})
        for (int64_t window : {1, 3, 17, 63, 64, 65, 100, 128, 150}) {
          list.push_back(c);
          list.back().dtype = dtype;
          list.back().dropout = dropout;
          list.back().window = window;
        }
  return list;
}

// Caps that are smaller than most scores and near them, and a scale of its own.
std::vector<Case> cases_with_caps() {
  std::vector<Case> list;
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (float dropout : {0.0f, 0.25f})
      for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{1, 71, 2, 1, 8}, Case{1, 144, 2, 2, 32}})
        for (const auto& [soft_cap, window] : {std::pair<double, int64_t>{0.0, 0}, {0.3, 0}, {2.0, 70}}) {
          list.push_back(c);
          list.back().dtype = dtype;
          list.back().dropout = dropout;
          list.back().window = window;
          list.back().scale = 0.4 / std::sqrt(static_cast<double>(c.head_size));
          list.back().soft_cap = soft_cap;
        }
  return list;
}

// Documents of one token, that begin and end within tiles and at their edges, with and without padding.
std::vector<Case> cases_with_documents() {
  std::vector<Case> list;
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (const auto& [window, soft_cap] : {std::pair<int64_t, double>{0, 0.0}, {20, 0.0}, {0, 2.0}})
      for (const Case& c : {Case{2, 40, 2, 1, 8}, Case{1, 200, 4, 2, 20}, Case{1, 208, 2, 2, 32}})
        for (const std::vector<int64_t>& documents :
             {std::vector<int64_t>{1, 1, 1, 16, 20}, {40}, {c.tokens - 5, 5}, {3, c.tokens / 2}, {16, c.tokens - 16}}) {
          list.push_back(c);
          list.back().dtype = dtype;
          list.back().window = window;
          list.back().soft_cap = soft_cap;
          list.back().documents = documents;
        }
  return list;
}

// Copies `count` rows of [B, S, width], from row `first` on, to the beginning of another tensor of this width.
void copy_rows(const HostTensor& from, int64_t first, int64_t count, HostTensor& to) {
  const int64_t width = from.view().shape.cols();
  for (int64_t e = 0; e < count * width; ++e) to.set(e, from.at(first * width + e));
}

// A sequence that begins with the document, and of whose other tokens nobody reads the results.
TEST(CpuAttention, ADocumentHasTheBitsThatItHasAloneInItsSequence) {
  for (const Case& c : cases_with_documents()) {
    Problem all(c);
    all.forward(2);
    all.backward(2);
    for (int64_t b = 0; b < c.sequences; ++b) {
      int64_t begin = b * c.tokens;
      for (const int64_t length : c.documents) {
        Case of_document = c;
        of_document.sequences = 1, of_document.documents = {};
        Problem alone(of_document);
        copy_rows(all.qkv, begin, length, alone.qkv);
        for (int64_t e = 0; e < alone.dout.elements(); ++e) alone.dout.set(e, 0);
        copy_rows(all.dout, begin, length, alone.dout);
        alone.forward(1);
        alone.backward(1);
        const auto expect_same = [&](const HostTensor& in_all, const HostTensor& in_alone) {
          const int64_t width = in_all.view().shape.cols();
          for (int64_t e = 0; e < length * width; ++e) ASSERT_EQ(in_all.at(begin * width + e), in_alone.at(e)) << describe(c);
        };
        expect_same(all.out, alone.out);
        expect_same(all.dqkv, alone.dqkv);
        begin += length;
      }
      for (int64_t e = begin * all.width(); e < (b + 1) * c.tokens * all.width(); ++e)
        ASSERT_EQ(all.dqkv.at(e), 0) << describe(c);
    }
  }
}

// The results of these tokens. Statistics are those of [B, N, S].
std::vector<double> own_rows(const Problem& p, const OwnTokens& own, const HostTensor& tensor) {
  std::vector<double> results;
  const bool statistics = &tensor == &p.log_sum_exp;
  const int64_t width = statistics ? 1 : tensor.view().shape.cols(), rows = tensor.elements() / width;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t e = row * width; own.any_of(row % p.c.tokens, 1) && e < (row + 1) * width; ++e)
      results.push_back(tensor.at(e));
  return results;
}

// Forward gets no queries of other tokens, as a rank that shares the sequence has none. Ranges end within tiles.
TEST(CpuAttention, OwnTokensHaveTheBitsThatTheyHaveAmongAll) {
  std::vector<Case> all = cases();
  for (const auto& more : {cases_with_windows(), cases_with_caps(), cases_with_documents()})
    all.insert(all.end(), more.begin(), more.end());
  for (size_t i = 0; i < all.size(); ++i) {
    const Case& c = all[i];
    const std::array<OwnTokens, 3> parts{{{{{{0, c.tokens / 3 + 1}, {}}}},
                                          {{{{c.tokens / 2, c.tokens}, {}}}},
                                          {{{{c.tokens / 4, c.tokens / 2}, {c.tokens * 3 / 4, c.tokens}}}}}};
    const OwnTokens& own = parts[i % parts.size()];
    Problem whole(c), part = whole;
    whole.forward(1);
    whole.backward(1);
    part.own = own;
    for (int64_t row = 0; row < c.sequences * c.tokens; ++row)
      for (int64_t e = 0; !own.any_of(row % c.tokens, 1) && e < c.heads * c.head_size; ++e)
        part.qkv.set(row * part.width() + e, std::numeric_limits<double>::quiet_NaN());
    part.forward(2);
    EXPECT_TRUE(own_rows(part, own, part.out) == own_rows(whole, own, whole.out)) << describe(c);
    EXPECT_TRUE(own_rows(part, own, part.log_sum_exp) == own_rows(whole, own, whole.log_sum_exp)) << describe(c);
    part.qkv = whole.qkv, part.out = whole.out, part.log_sum_exp = whole.log_sum_exp;
    part.backward(2);
    EXPECT_TRUE(own_rows(part, own, part.dqkv) == own_rows(whole, own, whole.dqkv)) << describe(c);
  }
}

// Two softmaxes become one: weights e^log_sum_exp, from which the larger one is taken here. Those that differ by 2000 must not
// overflow.
TEST(CpuAttention, MergesResultsOverTwoSetsOfKeys) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
    const DType wide = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
    const HostTensor more = HostTensor::random(dtype, {2, 3, 10}, 1), before = HostTensor::random(wide, {2, 3, 10}, 2);
    HostTensor out = before, sums = HostTensor::random(wide, {2, 2, 3}, 3), more_sums = HostTensor::random(wide, {2, 2, 3}, 4);
    more_sums.set(1, 2000), more_sums.set(2, -2000), more_sums.set(5, sums.at(5));
    const HostTensor sums_before = sums;
    cpu::compute(MergeAttention{.more = more.view(),
                                .more_log_sum_exp = more_sums.view(),
                                .out = out.view(),
                                .log_sum_exp = sums.view(),
                                .heads = 2},
                 2);
    const double u = wide == DType::Float64 ? 0x1p-50 : 0x1p-21;  // a few roundings of numbers of about one, or of 2000
    for (int64_t e = 0; e < out.elements(); ++e) {
      const int64_t place = (e / 30 * 2 + e % 10 / 5) * 3 + e / 10 % 3;
      const double a = sums_before.at(place), b = more_sums.at(place), largest = std::max(a, b);
      const double of_a = std::exp(a - largest), of_b = std::exp(b - largest);
      EXPECT_NEAR(out.at(e), (of_a * before.at(e) + of_b * more.at(e)) / (of_a + of_b), 4 * u);
      EXPECT_NEAR(sums.at(place), largest + std::log(of_a + of_b), 4 * u * std::max(1.0, std::abs(largest)));
    }
  }
}

// Counts pairs one by one: two products forward; backward two where a query or a key is wanted, one more for each wanted query,
// and two more for each wanted key.
TEST(Attention, ItsWorkForOwnTokensIsThatOfTheirPairs) {
  const Problem p({2, 24, 2, 1, 4});
  for (const bool causal : {true, false})
    for (const int64_t window : {0, 5, 20})
      for (const OwnTokens& own :
           {OwnTokens{{{{0, 12}, {}}}}, OwnTokens{{{{6, 12}, {12, 18}}}}, OwnTokens{{{{3, 9}, {20, 24}}}}}) {
        if (window > 0 && !causal) continue;
        double forward = 0, backward = 0;
        for (int64_t i = 0; i < 24; ++i)
          for (int64_t j = 0; j < 24; ++j) {
            if ((causal && j > i) || (window > 0 && j <= i - window)) continue;
            const bool query = own.any_of(i, 1), key = own.any_of(j, 1);
            forward += query ? 2 : 0;
            backward += (query || key ? 2 : 0) + (query ? 1 : 0) + (key ? 2 : 0);
          }
        const double flops_of_pair = 2 * 2 * 2 * 4;  // B, N, D
        const Attention call{
            .qkv = p.qkv.view(), .heads = 2, .key_value_heads = 1, .causal = causal, .window = window, .own = own};
        EXPECT_EQ(call.describe().flops, flops_of_pair * forward);
        const AttentionBackward back{
            .qkv = p.qkv.view(), .heads = 2, .key_value_heads = 1, .causal = causal, .window = window, .own = own};
        EXPECT_EQ(back.describe().flops, flops_of_pair * backward);
      }
}

TEST(CpuAttention, ForwardAndBackwardMatchDoubleReference) {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    expect_matches_double_reference({2, 112, 2, 1, 32, dtype, 0.25f, true, 20, 0, 0, {1, 40, 48, 16}});
  for (const Case& c : cases()) expect_matches_double_reference(c);
  for (const Case& c : cases_with_windows()) expect_matches_double_reference(c);
  for (const Case& c : cases_with_caps()) expect_matches_double_reference(c);
}

// Made by an independent implementation in float64, which wrote 12 digits: two heads share one of keys and values; one sequence
// of 16 tokens, and the same as documents.
TEST(CpuAttention, MatchesTheGoldenDocuments) {
  const std::string path = TRIVET_SOURCE_DIR "/../shared/data/golden-moe/attention.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  std::ifstream file(path);
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& expected : golden["cases"]) {
    Case c{.sequences = 1, .tokens = 16, .heads = 2, .key_value_heads = 1, .head_size = 4, .dtype = DType::Float64};
    const auto ends = expected["cu_seqlens"].get<std::vector<int64_t>>();
    for (size_t i = 1; i < ends.size(); ++i) c.documents.push_back(ends[i] - ends[i - 1]);
    Problem p(c);
    const auto each = [&](const auto& visit) {
      for (int64_t n = 0; n < 2; ++n)
        for (int64_t s = 0; s < 16; ++s)
          for (int64_t d = 0; d < 4; ++d) visit(n, s, d);
    };
    each([&](int64_t n, int64_t s, int64_t d) {
      p.qkv.set(p.query(0, s, n, d), golden["q"][n][s][d]);
      p.qkv.set(p.key(0, s, n, d), golden["k"][0][s][d]);
      p.qkv.set(p.value(0, s, n, d), golden["v"][0][s][d]);
      p.dout.set(p.output(0, s, n, d), golden["dout"][n][s][d]);
    });
    p.forward(1);
    p.backward(1);
    each([&](int64_t n, int64_t s, int64_t d) {
      EXPECT_NEAR(p.out.at(p.output(0, s, n, d)), expected["out"][n][s][d], 1e-10);
      EXPECT_NEAR(p.log_sum_exp.at(n * 16 + s), expected["log_sum_exp"][n][s], 1e-10);
      EXPECT_NEAR(p.dqkv.at(p.query(0, s, n, d)), expected["dq"][n][s][d], 1e-10);
      EXPECT_NEAR(p.dqkv.at(p.key(0, s, n, d)), expected["dk"][0][s][d], 1e-10);
      EXPECT_NEAR(p.dqkv.at(p.value(0, s, n, d)), expected["dv"][0][s][d], 1e-10);
    });
  }
}

// PyTorch's attention with a mask of documents (tests/golden/documents_reference.py, which says what the numbers are). 1e-9 of
// sums of up to 20,000 terms of float64.
TEST(CpuAttention, DocumentsAreAsWithAMaskInPyTorch) {
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/documents.jsonl");
  double number = 0;
  for (std::string line; std::getline(file, line); ++number) {
    const nlohmann::json golden = nlohmann::json::parse(line);
    Case c{.sequences = 1,
           .tokens = golden["tokens"],
           .heads = golden["heads"],
           .key_value_heads = golden["key_value_heads"],
           .head_size = golden["head_size"],
           .dtype = DType::Float64,
           .window = golden["window"],
           .documents = golden["documents"]};
    Problem p(c);
    const auto place = [](int64_t e, double factor, double square) {
      const auto x = static_cast<double>(e);
      return factor * x + square * x * x;
    };
    for (int64_t e = 0; e < p.qkv.elements(); ++e) p.qkv.set(e, 2 * std::sin(place(e, 0.7, 0.01) + number));
    for (int64_t e = 0; e < p.dout.elements(); ++e) p.dout.set(e, std::cos(place(e, 1.3, 0.02) + number));
    p.forward(1);
    p.backward(1);
    const auto checked = [&](const HostTensor& tensor) {
      double sum = 0;
      for (int64_t e = 0; e < tensor.elements(); ++e) sum += tensor.at(e) * std::sin(place(e, 0.9, 0));
      return sum;
    };
    EXPECT_NEAR(checked(p.out), golden["out"], 1e-9) << describe(c);
    EXPECT_NEAR(checked(p.dqkv), golden["dqkv"], 1e-9) << describe(c);
  }
  EXPECT_EQ(number, 20);
}

TEST(CpuAttention, RandomCasesAreAsInPyTorch) {
  for (const test::GoldenAttention& golden : test::golden_attention()) {
    Problem p({.sequences = golden.sequences,
               .tokens = golden.tokens,
               .heads = golden.heads,
               .key_value_heads = golden.key_value_heads,
               .head_size = golden.head_size,
               .dtype = DType::Float64,
               .causal = golden.causal,
               .window = golden.window,
               .scale = golden.scale,
               .soft_cap = golden.soft_cap});
    p.documents = golden.documents;
    for (int64_t e = 0; e < p.qkv.elements(); ++e) p.qkv.set(e, golden.qkv(e));
    for (int64_t e = 0; e < p.dout.elements(); ++e) p.dout.set(e, golden.dout(e));
    p.forward(2);
    p.backward(2);
    for (int64_t token = 0; token < golden.sequences * golden.tokens; ++token)
      golden.expect_token(
          token, [&](int64_t e) { return p.out.at(token * golden.query_width() + e); },
          [&](int64_t e) { return p.dqkv.at(token * golden.width() + e); }, "");
  }
}

TEST(CpuAttention, AWindowOfTheWholeSequenceChangesNoBit) {
  for (const Case& c : {Case{1, 150, 2, 1, 20}, Case{1, 144, 2, 1, 32, DType::BFloat16, 0.25f}}) {
    Problem whole(c);
    whole.forward(2);
    whole.backward(2);
    for (int64_t window : {c.tokens, c.tokens + 1, int64_t{1} << 40}) {
      Problem windowed(c);
      windowed.c.window = window;
      windowed.forward(2);
      windowed.backward(2);
      EXPECT_TRUE(whole.out == windowed.out && whole.log_sum_exp == windowed.log_sum_exp && whole.dqkv == windowed.dqkv);
    }
  }
}

TEST(CpuAttention, TokensBeforeTheWindowDoNotChangeOutputs) {
  const Case c{.sequences = 1, .tokens = 150, .heads = 2, .key_value_heads = 1, .head_size = 16, .window = 20};
  Problem whole(c), changed(c);
  for (int64_t e = 0; e < 100 * whole.width(); ++e) changed.qkv.set(e, 3.0);
  whole.forward(2);
  changed.forward(2);
  for (int64_t e = 119 * 32; e < 150 * 32; ++e) ASSERT_EQ(whole.out.at(e), changed.out.at(e));
  EXPECT_NE(whole.out.at(118 * 32), changed.out.at(118 * 32));
}

TEST(CpuAttention, MatchesDoubleReferenceOnEveryInstructionSet) {
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::V3, cpu::Isa::V4}) {
    const cpu::ForcedIsa forced(isa);
    for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
      for (bool causal : {true, false}) {
        expect_matches_double_reference({1, 71, 2, 1, 24, dtype, 0.25f, causal});
        if (causal) expect_matches_double_reference({1, 171, 2, 1, 24, dtype, 0.25f, causal, 30});
        expect_matches_double_reference({1, 80, 2, 1, 32, dtype, 0.25f, causal, 0, 0.5, 1.5});
      }
  }
}

// What a new thread keeps for forward and backward, and what a plan counts for it.
void expect_kept_as_planned(const Case& c, bool exactly) {
  Problem problem(c);
  int64_t kept = 0;
  std::thread([&] {
    problem.forward(1);
    problem.backward(1);
    kept = cpu::attention_scratch().capacity() + cpu::padded_copies().capacity();
  }).join();
  const int64_t planned =
      std::max(thread_scratch_bytes(problem.forward_arguments()), thread_scratch_bytes(problem.backward_arguments()));
  EXPECT_LE(kept, planned) << describe(c);
  if (exactly) {
    EXPECT_EQ(kept, planned) << describe(c);
  }
}

TEST(CpuAttention, AThreadKeepsWhatAPlanCounts) {
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::V4}) {
    const cpu::ForcedIsa forced(isa);
    for (DType dtype : {DType::Float32, DType::Float16, DType::BFloat16, DType::Float64}) {
      const bool in_pairs = dtype == DType::BFloat16 && cpu::attention_pair_loops() != nullptr;
      expect_kept_as_planned({1, 150, 4, 2, 24, dtype}, true);
      expect_kept_as_planned({2, 320, 4, 1, 64, dtype}, !in_pairs);
      expect_kept_as_planned({1, 320, 8, 1, 64, dtype, 0, true, 0, 0, 0, {1, 319}}, in_pairs || dtype != DType::BFloat16);
    }
  }
}

void expect_differences(const Case& c) {
  Problem problem(c);
  problem.forward(1);
  problem.backward(1);
  const double h = 1e-5;
  const auto loss = [&](int64_t element, double step) {
    Problem moved(c);
    moved.qkv.set(element, moved.qkv.at(element) + step);
    moved.forward(1);
    double sum = 0;
    for (int64_t e = 0; e < moved.out.elements(); ++e) sum += moved.out.at(e) * moved.dout.at(e);
    return sum;
  };
  for (int64_t e = 0; e < problem.qkv.elements(); ++e)
    EXPECT_NEAR(problem.dqkv.at(e), (loss(e, h) - loss(e, -h)) / (2 * h), 1e-8) << describe(c) << " " << e;
}

TEST(CpuAttention, BackwardMatchesFiniteDifferences) {
  for (bool causal : {true, false}) expect_differences({1, 6, 4, 2, 3, DType::Float64, 0.3f, causal});
  expect_differences({1, 6, 4, 2, 3, DType::Float64, 0.3f, true, 2});
  for (bool causal : {true, false}) expect_differences({1, 6, 4, 2, 3, DType::Float64, 0.3f, causal, 0, 1.7, 0.8});
  expect_differences({1, 6, 4, 2, 3, DType::Float64, 0, true, 2, 0, 0.8});
}

TEST(CpuAttention, BitsDoNotDependOnTheNumberOfThreads) {
  std::vector<Case> all = cases(), capped = cases_with_caps();
  all.insert(all.end(), capped.begin(), capped.end());
  for (const Case& c : all) {
    Problem one(c);
    one.forward(1);
    one.backward(1);
    for (int threads : {2, 4}) {
      Problem other(c);
      other.forward(threads);
      other.backward(threads);
      ASSERT_TRUE(one.out == other.out && one.log_sum_exp == other.log_sum_exp && one.dqkv == other.dqkv) << describe(c);
    }
  }
}

TEST(CpuAttention, LaterTokensDoNotChangeEarlierOutputs) {
  Problem whole({1, 150, 2, 1, 16}), changed({1, 150, 2, 1, 16});
  for (int64_t e = 100 * whole.width(); e < changed.qkv.elements(); ++e) changed.qkv.set(e, 3.0);
  whole.forward(2);
  changed.forward(2);
  for (int64_t e = 0; e < 100 * 32; ++e) ASSERT_EQ(whole.out.at(e), changed.out.at(e));
  EXPECT_NE(whole.out.at(100 * 32), changed.out.at(100 * 32));
}

TEST(CpuAttention, WithoutCausalityTheLastTokenChangesTheFirstOutput) {
  const Case c{.sequences = 1, .tokens = 150, .heads = 2, .key_value_heads = 1, .head_size = 16, .causal = false};
  Problem whole(c), changed(c);
  for (int64_t e = 149 * whole.width(); e < changed.qkv.elements(); ++e) changed.qkv.set(e, 3.0);
  whole.forward(2);
  changed.forward(2);
  EXPECT_NE(whole.out.at(0), changed.out.at(0));
}

TEST(Attention, WithoutCausalityItComputesTwiceAsMuch) {
  const Problem p({2, 8, 2, 1, 4});
  const auto call = [&](bool causal) {
    return Attention{.qkv = p.qkv.view(), .out = {}, .log_sum_exp = {}, .heads = 2, .key_value_heads = 1, .causal = causal}
        .describe();
  };
  EXPECT_EQ(call(true).flops, 2.0 * 2 * 8 * 8 * 2 * 4);
  EXPECT_EQ(call(false).flops, 2 * call(true).flops);
  EXPECT_EQ(call(false).variant, "sees all");
}

// 8 queries with 3 keys each, less half a square of 3 that the first queries lack.
TEST(Attention, WithAWindowItComputesABandOfScores) {
  const Problem p({2, 8, 2, 1, 4});
  const auto flops = [&](int64_t window) {
    return Attention{.qkv = p.qkv.view(), .out = {}, .log_sum_exp = {}, .heads = 2, .key_value_heads = 1, .window = window}
        .describe()
        .flops;
  };
  EXPECT_EQ(flops(3), 4.0 * 2 * (8 * 3 - 4.5) * 2 * 4);
  EXPECT_EQ(flops(8), flops(0));
}

// exp of these scores is beyond float32's range.
TEST(CpuAttention, LargeScoresMatchTheDoubleReferenceToo) {
  for (const Case& c : {Case{1, 70, 1, 1, 16}, Case{1, 70, 2, 1, 64, DType::BFloat16}, Case{1, 33, 1, 1, 20, DType::Float64}}) {
    Problem problem(c);
    problem.scale_scores(12);
    EXPECT_GT(std::ranges::max(Definition(problem).compute().log_sum_exp), 150);
    expect_matches_double_reference(c, 12);
  }
}

TEST(CpuAttention, UndefinedInputsReachTheOutput) {
  Problem problem({1, 70, 1, 1, 16});
  problem.qkv.set(problem.query(0, 66, 0, 3), std::numeric_limits<double>::quiet_NaN());
  problem.forward(1);
  for (int64_t d = 0; d < 16; ++d) EXPECT_TRUE(std::isnan(problem.out.at(problem.output(0, 66, 0, d))));
}

TEST(CpuAttention, SizesThatDoNotFitAreRefused) {
  Problem problem({1, 4, 4, 2, 8});
  problem.c.heads = 3;
  EXPECT_THROW(problem.forward(1), std::logic_error);
  Problem sees_all({1, 4, 4, 2, 8});
  const auto call = [&](int64_t window, bool causal) {
    return Attention{.qkv = sees_all.qkv.view(),
                     .out = sees_all.out.view(),
                     .log_sum_exp = sees_all.log_sum_exp.view(),
                     .heads = 4,
                     .key_value_heads = 2,
                     .causal = causal,
                     .window = window};
  };
  EXPECT_NO_THROW(call(2, true).check());
  EXPECT_THROW(call(2, false).check(), std::logic_error);
  EXPECT_THROW(call(-1, true).check(), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::attention_test
