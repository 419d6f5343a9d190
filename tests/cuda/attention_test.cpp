// Compares attention on a device with sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/math.h"
#include "kernels/workspace.h"
#include "tests/cuda/device_tensor.h"
#include "tests/cuda/twins.h"

namespace trivet::kernels::attention_test {
namespace {

struct Case {
  int64_t sequences, tokens, heads, key_value_heads, head_size;
  DType dtype = DType::BFloat16;
  float dropout = 0;
  int64_t elements_before = 0;  // offset of every tensor in its allocation
  bool causal = true;
  int64_t window = 0;
  double scale = 0, soft_cap = 0;
  std::vector<int64_t> documents = {};  // their lengths in each sequence; the rest is padding. Empty: a sequence is one
  OwnTokens own = {};                   // only their results are wanted

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
  bool drops() const { return dropout > 0; }
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  const auto number = [](int64_t n) { return std::to_string(n); };
  return std::string(name_of(c.dtype)) + "_B" + number(c.sequences) + "_S" + number(c.tokens) + "_N" + number(c.heads) + "_G" +
         number(c.key_value_heads) + "_D" + number(c.head_size) + (c.drops() ? "_dropout" : "") +
         (c.elements_before > 0 ? "_misaligned" : "") + (c.causal ? "" : "_sees_all") +
         (c.window > 0 ? "_W" + number(c.window) : "") + (c.documents.empty() ? "" : "_documents" + number(c.documents[0])) +
         (c.scale > 0 ? "_scaled" : "") + (c.soft_cap > 0 ? "_C" + number(static_cast<int64_t>(10 * c.soft_cap)) : "");
}

DropoutSite site_of(const Case& c) {
  return {.rate = c.dropout, .key = random_key(5, "attention"), .step = 9, .first_sample = 2, .first_element = 5};
}

// The elements of a tensor as doubles, by sequence, token, head and position in the head.
struct Heads {
  std::vector<double> numbers;
  int64_t tokens, heads, head_size;

  Heads(int64_t sequences, int64_t s, int64_t n, int64_t d)
      : numbers(sequences * s * n * d), tokens(s), heads(n), head_size(d) {}
  Heads(const HostTensor& tensor, int64_t s, int64_t n, int64_t d) : Heads(tensor.elements() / (s * n * d), s, n, d) {
    for (int64_t e = 0; e < tensor.elements(); ++e) numbers[e] = tensor.at(e);
  }
  double* at(int64_t b, int64_t s, int64_t n) { return &numbers[((b * tokens + s) * heads + n) * head_size]; }
  const double* at(int64_t b, int64_t s, int64_t n) const { return &numbers[((b * tokens + s) * heads + n) * head_size]; }
};

// The expected results, and what bounds their errors: the same sums over the magnitudes of all terms.
struct Reference {
  Heads out, out_magnitude, dqkv, dqkv_magnitude;
  std::vector<double> log_sum_exp;
};

double product(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}
void add(double factor, const double* x, int64_t n, double* sum, double* magnitude, double factor_magnitude) {
  for (int64_t d = 0; d < n; ++d) sum[d] += factor * x[d], magnitude[d] += factor_magnitude * std::abs(x[d]);
}

double dropout_factor(const Case& c, int64_t b, int64_t n, int64_t i, int64_t j) {
  const DropoutSite site = site_of(c);
  if (site.rate == 0) return 1;
  const auto element = static_cast<uint64_t>(site.first_element + (n * c.tokens + i) * c.tokens + j);
  const PhiloxBlock block = philox(
      site.key, element / 4, (static_cast<uint64_t>(site.step.value()) << 32) + static_cast<uint64_t>(site.first_sample + b));
  return unit_float(block[element % 4]) < site.rate ? 0 : 1 / (1 - static_cast<double>(site.rate));
}

// Computes row i of head n of sequence b, and adds what it contributes to gradients.
void add_row(const Case& c, const Heads& qkv, const Heads& dout, int64_t b, int64_t n, int64_t i, Reference& r) {
  if (c.document_of(i) == c.tokens) return;  // padding
  const int64_t D = c.head_size, k = c.heads + n / (c.heads / c.key_value_heads), v = k + c.key_value_heads;
  const double scale = c.score_scale();
  const int64_t keys = c.keys_of(i);
  std::vector<double> p(keys), factor(keys), slope(keys, 1.0);
  double maximum = -std::numeric_limits<double>::infinity(), total = 0;
  std::fill(p.begin(), p.end(), maximum);
  for (int64_t j = c.first_key(i); j < keys; ++j) {
    p[j] = product(qkv.at(b, i, n), qkv.at(b, j, k), D) * scale;
    if (c.soft_cap > 0) {
      const double share = std::tanh(p[j] / c.soft_cap);
      p[j] = c.soft_cap * share;
      slope[j] = 1 - share * share;
    }
    maximum = std::max(maximum, p[j]);
  }
  for (double& x : p) total += x = std::exp(x - maximum);
  for (double& x : p) x /= total;
  r.log_sum_exp[(b * c.heads + n) * c.tokens + i] = maximum + std::log(total);

  double* out = r.out.at(b, i, n);
  double* out_magnitude = r.out_magnitude.at(b, i, n);
  for (int64_t j = 0; j < keys; ++j) {
    factor[j] = dropout_factor(c, b, n, i, j);
    add(p[j] * factor[j], qkv.at(b, j, v), D, out, out_magnitude, p[j] * factor[j]);
  }
  const double* dy = dout.at(b, i, n);
  const double delta = product(dy, out, D);
  double delta_magnitude = 0;
  for (int64_t d = 0; d < D; ++d) delta_magnitude += std::abs(dy[d]) * out_magnitude[d];
  for (int64_t j = 0; j < keys; ++j) {
    const double dropped = p[j] * factor[j], dp_j = product(dy, qkv.at(b, j, v), D) * factor[j];
    const double to_product = slope[j] * scale, ds = p[j] * (dp_j - delta) * to_product;
    const double ds_magnitude = p[j] * (std::abs(dp_j - delta) + delta_magnitude) * to_product;
    add(dropped, dy, D, r.dqkv.at(b, j, v), r.dqkv_magnitude.at(b, j, v), dropped);
    add(ds, qkv.at(b, j, k), D, r.dqkv.at(b, i, n), r.dqkv_magnitude.at(b, i, n), ds_magnitude);
    add(ds, qkv.at(b, i, n), D, r.dqkv.at(b, j, k), r.dqkv_magnitude.at(b, j, k), ds_magnitude);
  }
}

Reference reference(const Case& c, const HostTensor& qkv, const HostTensor& dout) {
  const int64_t all_heads = c.heads + 2 * c.key_value_heads;
  const Heads out(c.sequences, c.tokens, c.heads, c.head_size), dqkv(c.sequences, c.tokens, all_heads, c.head_size);
  Reference r{out, out, dqkv, dqkv, std::vector<double>(c.sequences * c.heads * c.tokens)};
  const Heads x(qkv, c.tokens, all_heads, c.head_size), dy(dout, c.tokens, c.heads, c.head_size);
  for (int64_t b = 0; b < c.sequences; ++b)
    for (int64_t n = 0; n < c.heads; ++n)
      for (int64_t i = 0; i < c.tokens; ++i) add_row(c, x, dy, b, n, i, r);
  return r;
}

struct Results {
  HostTensor out, log_sum_exp, dqkv;
  bool operator==(const Results&) const = default;
};

DType statistics_of(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

// Runs forward on the device, then backward with the results of forward. Outputs are NaN before.
// With `given`, it runs backward only, with the results of this forward.
Results on_device(const Case& c, const HostTensor& qkv, const HostTensor& dout, const Results* given = nullptr) {
  const DeviceTensor x(qkv, c.elements_before), dy(dout, c.elements_before);
  const DeviceTensor out(given ? given->out : HostTensor::poisoned(c.dtype, dout.view().shape), c.elements_before);
  const DeviceTensor log_sum_exp(
      given ? given->log_sum_exp : HostTensor::poisoned(statistics_of(c.dtype), {c.sequences, c.heads, c.tokens}),
      c.elements_before);
  const DeviceTensor dx(HostTensor::poisoned(c.dtype, qkv.view().shape), c.elements_before);
  HostTensor step(DType::Float64, {1});
  step.set(0, site_of(c).step.value());
  const DeviceTensor step_on_device(step);
  DropoutSite site = site_of(c);  // the kernels must read its step from memory
  site.step = Number(NAN, step_on_device.view().as<double>());
  HostTensor first_tokens(DType::Int32, {c.sequences, c.tokens});
  for (int64_t e = 0; e < first_tokens.elements(); ++e)
    static_cast<int32_t*>(first_tokens.view().data)[e] = static_cast<int32_t>(c.document_of(e % c.tokens));
  const DeviceTensor documents(first_tokens);
  const ConstTensorView of_documents = c.documents.empty() ? ConstTensorView() : documents.view();
  const AttentionBackward backward{.dout = dy.view(),
                                   .qkv = x.view(),
                                   .out = out.view(),
                                   .log_sum_exp = log_sum_exp.view(),
                                   .dqkv = dx.view(),
                                   .heads = c.heads,
                                   .key_value_heads = c.key_value_heads,
                                   .causal = c.causal,
                                   .window = c.window,
                                   .scale = c.scale,
                                   .soft_cap = c.soft_cap,
                                   .dropout = site,
                                   .documents = of_documents,
                                   .own = c.own};
  const TestLaunch device(workspace_bytes(backward));
  const Attention forward{.qkv = x.view(),
                          .out = out.view(),
                          .log_sum_exp = log_sum_exp.view(),
                          .heads = c.heads,
                          .key_value_heads = c.key_value_heads,
                          .causal = c.causal,
                          .window = c.window,
                          .scale = c.scale,
                          .soft_cap = c.soft_cap,
                          .dropout = site,
                          .documents = of_documents,
                          .own = c.own};
  if (!given) cuda::compute(forward, device.launch());
  cuda::compute(backward, device.launch());
  return {out.read(), log_sum_exp.read(), dx.read()};
}

struct Inputs {
  HostTensor qkv, dout;

  explicit Inputs(const Case& c)
      : qkv(HostTensor::random(c.dtype, {c.sequences, c.tokens, (c.heads + 2 * c.key_value_heads) * c.head_size}, 3)),
        dout(HostTensor::random(c.dtype, {c.sequences, c.tokens, c.heads * c.head_size}, 4)) {
    for (int64_t e = 0; e < qkv.elements(); ++e) qkv.set(e, 2 * qkv.at(e));  // so that scores differ
  }
};

// Probabilities and their gradients are rounded to dtype before they are multiplied, and results once more; the backward pass
// multiplies dO with a rounded output: together 3 half-units of the magnitudes. Scores have an error of about D u |q| |k| /
// sqrt(D) <= 4 sqrt(D) u in the type of sums, which is the relative error of a probability; sums over keys and heads add S u at
// most. Numbers below float16's normal range lose up to 2^-25, whatever their size, and float32 results below its normal range
// may be zero. `score_scale` says how much larger than usual the scores are.
void expect_near(const Case& c, const char* what, const HostTensor& result, const std::vector<double>& expected,
                 const std::vector<double>& magnitudes, double score_scale) {
  const double u = c.dtype == DType::Float64 ? 0x1p-53 : 0x1p-24;
  const double tolerance = 3 * half_unit(c.dtype) +
                           (8 * score_scale * std::sqrt(static_cast<double>(c.head_size)) + static_cast<double>(c.tokens)) * u;
  const double underflow = c.dtype == DType::Float16 ? 0x1p-25 * static_cast<double>(1 + 2 * c.tokens * c.heads) : 0x1p-125;
  ASSERT_EQ(result.elements(), static_cast<int64_t>(expected.size()));
  for (int64_t e = 0; e < result.elements(); ++e)
    ASSERT_NEAR(result.at(e), expected[e], tolerance * magnitudes[e] + underflow)
        << what << " " << e << " of " << result.elements();
}

void expect_matches_reference(const Case& c, const Inputs& inputs, double score_scale = 1) {
  const Results results = on_device(c, inputs.qkv, inputs.dout);
  const Reference expected = reference(c, inputs.qkv, inputs.dout);
  expect_near(c, "out", results.out, expected.out.numbers, expected.out_magnitude.numbers, score_scale);
  expect_near(c, "dqkv", results.dqkv, expected.dqkv.numbers, expected.dqkv_magnitude.numbers, score_scale);
  std::vector<double> ones(expected.log_sum_exp.size());
  for (size_t i = 0; i < ones.size(); ++i) ones[i] = 1 + std::abs(expected.log_sum_exp[i]);
  Case in_sums = c;
  in_sums.dtype = statistics_of(c.dtype);
  expect_near(in_sums, "log_sum_exp", results.log_sum_exp, expected.log_sum_exp, ones, score_scale);
}

class CudaAttention : public testing::TestWithParam<Case> {};

TEST_P(CudaAttention, ForwardAndBackwardMatchDoubleReference) { expect_matches_reference(GetParam(), Inputs(GetParam())); }

// Sizes below, at and above those of tiles, several blocks, and groups of heads.
std::vector<Case> tensor_core_cases() {
  std::vector<Case> list;
  for (int64_t head_size : {64, 96, 128})
    for (DType dtype : {DType::BFloat16, DType::Float16})
      for (float dropout : {0.0f, 0.25f})
        for (const auto& [sequences, tokens, heads, key_value_heads] : std::vector<std::array<int64_t, 4>>{
                 {1, 1, 1, 1}, {2, 2, 2, 1}, {2, 31, 4, 2}, {1, 64, 1, 1}, {1, 65, 2, 2}, {1, 127, 1, 1}, {1, 129, 4, 1}})
          list.push_back({sequences, tokens, heads, key_value_heads, head_size, dtype, dropout});
  list.push_back({1, 300, 2, 1, 64});
  list.push_back({1, 260, 1, 1, 128, DType::BFloat16, 0.25f});
  list.push_back({3, 20, 8, 1, 64, DType::Float16});
  list.push_back({2, 70, 2, 1, 64, DType::BFloat16, 0.25f, 0, true, 0, 0.05});
  // Documents of one token, that begin and end within tiles and blocks and at their edges, with and without padding.
  for (int64_t head_size : {64, 96, 128})
    for (const std::vector<int64_t>& documents : {std::vector<int64_t>{1, 33, 94, 2, 100}, {128, 64, 65}, {270, 30}, {300}})
      list.push_back({2, 300, 2, 1, head_size, DType::BFloat16, 0, 0, true, 0, 0, 0, documents});
  list.push_back({1, 129, 2, 2, 64, DType::Float16, 0, 0, true, 0, 0, 0, {1, 1, 62, 1, 63}});
  // Without tensor cores:
  list.push_back({2, 70, 2, 1, 64, DType::BFloat16, 0.25f, 0, true, 0, 0, 0, {30, 33}});
  list.push_back({2, 70, 2, 1, 64, DType::BFloat16, 0.25f, 0, true, 0, 0.05, 1.5});
  list.push_back({2, 70, 2, 1, 64, DType::BFloat16, 0.25f, 0, false});
  list.push_back({1, 150, 2, 1, 64, DType::BFloat16, 0.25f, 0, true, 40});
  return list;
}
INSTANTIATE_TEST_SUITE_P(OnTensorCores, CudaAttention, testing::ValuesIn(tensor_core_cases()), name_of_case);

std::vector<Case> simple_cases() {
  std::vector<Case> list;
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (float dropout : {0.0f, 0.25f})
      for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{2, 3, 2, 1, 5}, Case{1, 65, 4, 2, 8}, Case{2, 32, 2, 2, 32},
                            Case{1, 71, 2, 1, 20}, Case{1, 33, 1, 1, 256}, Case{1, 40, 8, 2, 72}}) {
        for (bool causal : {true, false}) {
          list.push_back(c);
          list.back().dtype = dtype;
          list.back().dropout = dropout;
          list.back().causal = causal;
        }
      }
  for (DType dtype : {DType::Float32, DType::Float16, DType::Float64})
    for (int64_t window : {1, 5, 32, 33, 64, 70}) list.push_back({1, 110, 2, 1, 20, dtype, 0.25f, 0, true, window});
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64})
    for (double soft_cap : {0.0, 0.5, 2.0, 50.0})
      for (const auto& [causal, window] : {std::pair<bool, int64_t>{true, 0}, {true, 40}, {false, 0}})
        list.push_back({1, 70, 2, 1, 20, dtype, 0.25f, 0, causal, window, 0.15, soft_cap});
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (const std::vector<int64_t>& documents : {std::vector<int64_t>{1, 33, 64, 2}, {70, 32}, {110}})
      list.push_back({2, 110, 2, 1, 64, dtype, 0.25f, 0, true, documents.size() == 2 ? 40 : 0, 0, 0, documents});
  for (int64_t head_size : {64, 128}) {
    list.push_back({1, 33, 2, 1, head_size, DType::Float32, 0.25f});
    list.push_back({1, 33, 2, 1, head_size, DType::BFloat16, 0.25f, 1});
    list.push_back({1, 33, 2, 1, head_size, DType::Float16, 0, 4});
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(WithoutTensorCores, CudaAttention, testing::ValuesIn(simple_cases()), name_of_case);

// Keys and values are unit vectors, one for each token: a row of the output then holds the row's probabilities after dropout,
// dQ holds its dS, and dV, if dO consists of unit vectors as well, holds the transposed probabilities. So it shows if one
// probability is dropped in place of another.
class CudaAttentionDropout : public testing::TestWithParam<Case> {};

TEST_P(CudaAttentionDropout, DropsTheProbabilitiesThatTheCpuDrops) {
  const Case& c = GetParam();
  const int64_t all_heads = c.heads + 2 * c.key_value_heads;
  for (bool unit_dout : {true, false}) {
    Inputs inputs(c);
    for (int64_t token = 0; token < c.tokens; ++token)
      for (int64_t d = 0; d < c.head_size; ++d) {
        for (int64_t n = c.heads; n < all_heads; ++n) inputs.qkv.set((token * all_heads + n) * c.head_size + d, d == token);
        for (int64_t n = 0; unit_dout && n < c.heads; ++n) inputs.dout.set((token * c.heads + n) * c.head_size + d, d == token);
      }
    expect_matches_reference(c, inputs);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionDropout,
                         testing::Values(Case{1, 64, 2, 1, 64, DType::Float16, 0.5f},
                                         Case{1, 63, 3, 1, 64, DType::Float16, 0.5f},
                                         Case{1, 90, 1, 1, 96, DType::BFloat16, 0.1f},
                                         Case{1, 127, 1, 1, 128, DType::Float16, 0.5f},
                                         Case{1, 37, 2, 1, 40, DType::Float32, 0.5f}),
                         name_of_case);

std::vector<double> own_rows(const Case& c, const HostTensor& tensor, bool statistics = false) {
  std::vector<double> results;
  const int64_t width = statistics ? 1 : tensor.view().shape.cols(), rows = tensor.elements() / width;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t e = row * width; c.own.any_of(row % c.tokens, 1) && e < (row + 1) * width; ++e)
      results.push_back(tensor.at(e));
  return results;
}

// Forward gets no queries of other tokens. Results of blocks without own tokens are not made.
TEST(CudaAttention, OwnTokensHaveTheBitsThatTheyHaveAmongAll) {
  for (const Case& c : {Case{1, 300, 2, 1, 64}, Case{2, 260, 2, 2, 128, DType::Float16, 0.25f},
                        Case{1, 300, 2, 1, 96, DType::BFloat16, 0, 0, true, 0, 0, 0, {1, 33, 94, 2, 100}},
                        Case{2, 110, 2, 1, 20, DType::Float32, 0.25f, 0, true, 32}, Case{1, 150, 2, 1, 8, DType::Float64}}) {
    const Inputs inputs(c);
    const Results whole = on_device(c, inputs.qkv, inputs.dout);
    for (const OwnTokens& own :
         {OwnTokens{{{{c.tokens / 2, c.tokens}, {}}}}, OwnTokens{{{{0, c.tokens / 5}, {c.tokens * 4 / 5, c.tokens}}}}}) {
      Case part = c;
      part.own = own;
      Inputs partly(c);
      const int64_t width = inputs.qkv.view().shape.cols();
      for (int64_t row = 0; row < c.sequences * c.tokens; ++row)
        for (int64_t e = 0; !own.any_of(row % c.tokens, 1) && e < c.heads * c.head_size; ++e)
          partly.qkv.set(row * width + e, NAN);
      const Results forward = on_device(part, partly.qkv, inputs.dout),
                    backward = on_device(part, inputs.qkv, inputs.dout, &whole);
      EXPECT_TRUE(own_rows(part, forward.out) == own_rows(part, whole.out));
      EXPECT_TRUE(own_rows(part, forward.log_sum_exp, true) == own_rows(part, whole.log_sum_exp, true));
      EXPECT_TRUE(own_rows(part, backward.dqkv) == own_rows(part, whole.dqkv));
      if (own.ranges[0].begin >= 128) {
        EXPECT_TRUE(std::isnan(backward.dqkv.at(c.tokens / 4 * width)));
      }
    }
  }
}

// The functions of the two libraries differ in the last bits.
TEST(CudaAttention, MergesResultsAsTheCpu) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64}) {
    const DType wide = statistics_of(dtype);
    Twin more = Twin::random(dtype, {2, 70, 3 * 50}, 1), out = Twin::random(wide, {2, 70, 3 * 50}, 2);
    Twin more_sums = Twin::random(wide, {2, 3, 70}, 3), sums = Twin::random(wide, {2, 3, 70}, 4);
    run_twins<MergeAttention>([&](const auto& view) {
      return MergeAttention{
          .more = view(more), .more_log_sum_exp = view(more_sums), .out = view(out), .log_sum_exp = view(sums), .heads = 3};
    });
    const double u = wide == DType::Float64 ? 0x1p-50 : 0x1p-21;
    out.expect_near("out", u, u);
    sums.expect_near("log_sum_exp", u, u);
  }
}

TEST(CudaAttention, RepeatsItsBits) {
  for (const Case& c : {Case{1, 140, 4, 2, 64}, Case{1, 50, 2, 1, 24, DType::Float32}}) {
    const Inputs inputs(c);
    EXPECT_TRUE(on_device(c, inputs.qkv, inputs.dout) == on_device(c, inputs.qkv, inputs.dout));
  }
}

TEST(CudaAttention, LaterTokensDoNotChangeEarlierOutputs) {
  const Case c{1, 150, 2, 1, 64};
  const Inputs inputs(c);
  Inputs changed(c);
  const int64_t width = changed.qkv.elements() / c.tokens, out_width = c.heads * c.head_size;
  for (int64_t e = 100 * width; e < changed.qkv.elements(); ++e) changed.qkv.set(e, 3.0);
  const HostTensor before = on_device(c, inputs.qkv, inputs.dout).out, after = on_device(c, changed.qkv, changed.dout).out;
  for (int64_t e = 0; e < 100 * out_width; ++e) ASSERT_EQ(before.at(e), after.at(e));
  EXPECT_NE(before.at(100 * out_width), after.at(100 * out_width));
}

// exp of these scores is beyond float32's range.
TEST(CudaAttention, LargeScoresMatchTheReferenceToo) {
  constexpr double kScale = 12;
  for (const Case& c : {Case{1, 70, 1, 1, 64}, Case{1, 70, 1, 1, 16, DType::Float32}}) {
    Inputs inputs(c);
    const int64_t width = 3 * c.head_size;
    for (int64_t e = 0; e < inputs.qkv.elements(); ++e)
      if (e % width < 2 * c.head_size) inputs.qkv.set(e, kScale * inputs.qkv.at(e));  // queries and keys, not the values
    const std::vector<double> sums = reference(c, inputs.qkv, inputs.dout).log_sum_exp;
    EXPECT_GT(*std::max_element(sums.begin(), sums.end()), 150);
    expect_matches_reference(c, inputs, kScale * kScale);
  }
}

TEST(CudaAttention, UndefinedInputsReachTheOutput) {
  for (const Case& c : {Case{1, 70, 1, 1, 64}, Case{1, 70, 1, 1, 16, DType::Float32}}) {
    Inputs inputs(c);
    inputs.qkv.set(66 * 3 * c.head_size + 3, std::numeric_limits<double>::quiet_NaN());  // of query 66
    const Results results = on_device(c, inputs.qkv, inputs.dout);
    for (int64_t d = 0; d < c.head_size; ++d) EXPECT_TRUE(std::isnan(results.out.at(66 * c.head_size + d)));
  }
}

TEST(CudaAttention, NothingToDoLaunchesNothing) {
  const Case c{0, 7, 2, 1, 64};
  EXPECT_EQ(on_device(c, HostTensor(c.dtype, {0, 7, 256}), HostTensor(c.dtype, {0, 7, 128})).out.elements(), 0);
}

TEST(CudaAttention, HeadsThatAreTooLargeAreRefused) {
  const Case c{1, 2, 1, 1, 257, DType::Float32};
  const Inputs inputs(c);
  try {
    on_device(c, inputs.qkv, inputs.dout);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "attention: the head size is 257; on CUDA it may be at most 256");
  }
}

}  // namespace
}  // namespace trivet::kernels::attention_test
