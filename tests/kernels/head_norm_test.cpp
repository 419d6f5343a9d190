// Compares norms of query heads and key heads with RmsNorm of each head by itself.
#include <array>

#include "tests/kernels/every_way.h"

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
    for (const auto& [b, s, n, g, d] : std::vector<std::array<int64_t, 5>>{
             {0, 3, 2, 1, 4}, {1, 1, 1, 1, 1}, {2, 5, 4, 2, 6}, {1, 140, 3, 1, 64}, {1, 70, 2, 2, 33}})
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

void expect_head(const Case& c, const HostTensor& qkv, int64_t head, const HostTensor& expected) {
  for (int64_t token = 0; token < c.rows(); ++token)
    for (int64_t d = 0; d < c.head_size; ++d)
      ASSERT_EQ(qkv.at(place(c, token, head, d)), expected.at(token * c.head_size + d)) << name_of(c.dtype) << " head " << head;
}

struct Inputs {
  HostTensor qkv, dout, query_gain, key_gain;
  explicit Inputs(const Case& c)
      : qkv(HostTensor::random(c.dtype, c.shape(), 1)),
        dout(HostTensor::random(c.dtype, c.shape(), 2)),
        query_gain(HostTensor::random(c.dtype, {c.head_size}, 3)),
        key_gain(HostTensor::random(c.dtype, {c.head_size}, 4)) {}
  const HostTensor& gain(const Case& c, int64_t head) const { return head < c.heads ? query_gain : key_gain; }
};

struct Results {
  HostTensor out, rstd, dqkv, dgains;
};

Results results(const Case& c, const Inputs& in) {
  const auto all = same_bits_every_way([&](Kernels& kernels) {
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
                                      .rstd = rstd.view(),
                                      .dqkv = dqkv.view(),
                                      .heads = c.heads,
                                      .key_value_heads = c.key_value_heads});
    kernels.head_norm_backward_weight({.dout = in.dout.view(),
                                       .qkv = in.qkv.view(),
                                       .rstd = rstd.view(),
                                       .dgains = dgains.view(),
                                       .heads = c.heads,
                                       .key_value_heads = c.key_value_heads});
    return std::vector{out, rstd, dqkv, dgains};
  });
  return {all[0], all[1], all[2], all[3]};
}

// The same loops compute both, in the same order.
TEST(HeadNorm, HasTheBitsOfRmsNormOfEachHead) {
  const auto kernels = make_cpu_kernels(1);
  for (const Case& c : all_cases()) {
    const Inputs in(c);
    const Results r = results(c, in);
    for (int64_t head = 0; head < c.normalized(); ++head) {
      const HostTensor x = head_of(c, in.qkv, head), dy = head_of(c, in.dout, head);
      HostTensor y(c.dtype, {c.rows(), c.head_size}), dx = y, rstd(statistics_of(c.dtype), {c.rows()});
      HostTensor dgain(statistics_of(c.dtype), {c.head_size});
      kernels->rms_norm({.x = x.view(), .gain = in.gain(c, head).view(), .y = y.view(), .rstd = rstd.view(), .epsilon = 1e-3f});
      kernels->rms_norm_backward_input(
          {.dy = dy.view(), .x = x.view(), .gain = in.gain(c, head).view(), .rstd = rstd.view(), .dx = dx.view()});
      kernels->rms_norm_backward_weight(
          {.dy = dy.view(), .x = x.view(), .rstd = rstd.view(), .dgain = dgain.view(), .accumulate = false});
      expect_head(c, r.out, head, y);
      expect_head(c, r.dqkv, head, dx);
      for (int64_t token = 0; token < c.rows(); ++token) ASSERT_EQ(r.rstd.at(token * c.normalized() + head), rstd.at(token));
      for (int64_t d = 0; d < c.head_size; ++d) ASSERT_EQ(r.dgains.at(head * c.head_size + d), dgain.at(d)) << head;
    }
    for (int64_t head = c.normalized(); head < c.all(); ++head) {
      expect_head(c, r.out, head, head_of(c, in.qkv, head));
      expect_head(c, r.dqkv, head, head_of(c, in.dout, head));
    }
  }
}

TEST(HeadNorm, RefusesGainsOfAnotherSize) {
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
