// Compares norms of query heads and key heads with RmsNorm of each head by itself.
#include <array>
#include <cmath>

#include "tests/kernels/every_device.h"

namespace trivet::kernels::head_norm_test {
namespace {

struct Case {
  DType dtype;
  int64_t sequences, tokens, heads, key_value_heads, head_size;
  Shape shape() const { return {sequences, tokens, (heads + 2 * key_value_heads) * head_size}; }
  int64_t rows() const { return sequences * tokens; }
  int64_t normalized() const { return heads + key_value_heads; }
  int64_t all() const { return heads + 2 * key_value_heads; }
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes)
    for (const auto& [b, s, n, g, d] : std::vector<std::array<int64_t, 5>>{{0, 3, 2, 1, 4},
                                                                           {1, 1, 1, 1, 1},
                                                                           {2, 5, 4, 2, 6},
                                                                           {1, 5, 2, 1, 64},
                                                                           {1, 70, 1, 1, 33},
                                                                           {1, 140, 3, 1, 64},
                                                                           {1, 70, 2, 2, 33}})
      cases.push_back({dtype, b, s, n, g, d});
  return cases;
}

// Element `d` of a head of a token in qkv.
int64_t place(const Case& c, int64_t token, int64_t head, int64_t d) { return (token * c.all() + head) * c.head_size + d; }

// One head of all tokens, [B S, D], of a tensor like qkv.
HostTensor head_of(const Case& c, const HostTensor& qkv, int64_t head) {
  HostTensor rows(c.dtype, {c.rows(), c.head_size});
  for (int64_t token = 0; token < c.rows(); ++token)
    for (int64_t d = 0; d < c.head_size; ++d) rows.set(token * c.head_size + d, qkv.at(place(c, token, head, d)));
  return rows;
}

// `units`: how many units of sums the elements may be off, in addition to two roundings of an element.
void expect_head(const Case& c, const HostTensor& qkv, int64_t head, const HostTensor& expected, double units = 0) {
  const double off_by = units * sum_unit(c.dtype);
  for (int64_t token = 0; token < c.rows(); ++token)
    for (int64_t d = 0; d < c.head_size; ++d) {
      const double value = expected.at(token * c.head_size + d);
      ASSERT_NEAR(qkv.at(place(c, token, head, d)), value, off_by + (units > 0 ? 2 * half_unit(c.dtype) * std::abs(value) : 0))
          << name_of(c.dtype) << " head " << head;
    }
}

struct Inputs {
  HostTensor qkv, dout, query_gain, key_gain, rstd;  // rstd: what backward passes get
  explicit Inputs(const Case& c)
      : qkv(HostTensor::random(c.dtype, c.shape(), 1)),
        dout(HostTensor::random(c.dtype, c.shape(), 2)),
        query_gain(HostTensor::random(c.dtype, {c.head_size}, 3)),
        key_gain(HostTensor::random(c.dtype, {c.head_size}, 4)),
        rstd(HostTensor::random(statistics_of(c.dtype), {c.rows(), c.normalized()}, 6)) {
    for (int64_t e = 0; e < rstd.elements(); ++e) rstd.set(e, 1 + std::abs(rstd.at(e)));
  }
  const HostTensor& gain(const Case& c, int64_t head) const { return head < c.heads ? query_gain : key_gain; }
};

struct Results {
  HostTensor out, rstd, dqkv, dgains;
};

Results results(const KernelsOnEveryDevice& test, const Case& c, const Inputs& in) {
  const auto all = test.same_bits_every_way([&](Kernels& kernels) {
    HostTensor out = HostTensor::poisoned(c.dtype, c.shape()), dqkv = out;
    HostTensor rstd = HostTensor::poisoned(statistics_of(c.dtype), {c.rows(), c.normalized()});
    HostTensor dgains = HostTensor::poisoned(statistics_of(c.dtype), {c.normalized(), c.head_size});
    kernels.head_norm({.qkv = in.qkv.view(),
                       .query_gain = in.query_gain.view(),
                       .key_gain = in.key_gain.view(),
                       .out = out.view(),
                       .rstd = rstd.view(),
                       .heads = c.heads,
                       .key_value_heads = c.key_value_heads,
                       .epsilon = 1e-3f});
    kernels.head_norm_backward_input({.dout = in.dout.view(),
                                      .qkv = in.qkv.view(),
                                      .query_gain = in.query_gain.view(),
                                      .key_gain = in.key_gain.view(),
                                      .rstd = in.rstd.view(),
                                      .dqkv = dqkv.view(),
                                      .heads = c.heads,
                                      .key_value_heads = c.key_value_heads});
    kernels.head_norm_backward_weight({.dout = in.dout.view(),
                                       .qkv = in.qkv.view(),
                                       .rstd = in.rstd.view(),
                                       .dgains = dgains.view(),
                                       .heads = c.heads,
                                       .key_value_heads = c.key_value_heads});
    return std::vector{out, rstd, dqkv, dgains};
  });
  return {all[0], all[1], all[2], all[3]};
}

// On the CPU the same loops compute both, in the same order. On a GPU, only gradients of gains are summed in the same order.
TEST_P(KernelsOnEveryDevice, HeadNormIsRmsNormOfEachHead) {
  const double units = on_cpu() ? 0 : 256;
  for (const Case& c : all_cases()) {
    if (takes_too_long(2 * c.shape().elements())) continue;
    const Inputs in(c);
    const Results r = results(*this, c, in);
    for (int64_t head = 0; head < c.normalized(); ++head) {
      const HostTensor x = head_of(c, in.qkv, head), dy = head_of(c, in.dout, head);
      HostTensor y(c.dtype, {c.rows(), c.head_size}), dx = y, rstd(statistics_of(c.dtype), {c.rows()}), given = rstd;
      HostTensor dgain(statistics_of(c.dtype), {c.head_size});
      for (int64_t token = 0; token < c.rows(); ++token) given.set(token, in.rstd.at(token * c.normalized() + head));
      kernels().rms_norm(
          {.x = x.view(), .gain = in.gain(c, head).view(), .y = y.view(), .rstd = rstd.view(), .epsilon = 1e-3f});
      kernels().rms_norm_backward_input(
          {.dy = dy.view(), .x = x.view(), .gain = in.gain(c, head).view(), .rstd = given.view(), .dx = dx.view()});
      kernels().rms_norm_backward_weight(
          {.dy = dy.view(), .x = x.view(), .rstd = given.view(), .dgain = dgain.view(), .accumulate = false});
      expect_head(c, r.out, head, y, units);
      expect_head(c, r.dqkv, head, dx, units);
      for (int64_t token = 0; token < c.rows(); ++token)
        ASSERT_NEAR(r.rstd.at(token * c.normalized() + head), rstd.at(token), units / 4 * sum_unit(c.dtype) * rstd.at(token));
      for (int64_t d = 0; d < c.head_size; ++d) ASSERT_EQ(r.dgains.at(head * c.head_size + d), dgain.at(d)) << head;
    }
    for (int64_t head = c.normalized(); head < c.all(); ++head) {
      expect_head(c, r.out, head, head_of(c, in.qkv, head));
      expect_head(c, r.dqkv, head, head_of(c, in.dout, head));
    }
  }
}

TEST_P(KernelsOnEveryDevice, HeadNormRefusesGainsOfAnotherSize) {
  const Case c{DType::Float32, 1, 2, 2, 1, 4};
  const Inputs in(c);
  HostTensor out(c.dtype, c.shape()), rstd(c.dtype, {2, 3}), gain(c.dtype, {8});
  HeadNorm args{.qkv = in.qkv.view(),
                .query_gain = in.query_gain.view(),
                .key_gain = in.key_gain.view(),
                .out = out.view(),
                .rstd = rstd.view(),
                .heads = 2,
                .key_value_heads = 1};
  EXPECT_NO_THROW(args.check());
  args.key_gain = gain.view();
  EXPECT_THROW(args.check(), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::head_norm_test
