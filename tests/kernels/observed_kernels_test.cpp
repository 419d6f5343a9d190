#include "kernels/observed_kernels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace trivet::kernels::observed_kernels_test {
namespace {

struct Log final : KernelObserver {
  void asked(const Matmul& product) override { products.push_back(product); }
  void begins() override { ++begun; }
  void ended(const KernelCall& call) override {
    EXPECT_EQ(begun, calls.size() + 1);
    calls.push_back(call);
  }
  std::vector<KernelCall> calls;
  std::vector<Matmul> products;
  size_t begun = 0;
};

TEST(ObservedKernels, TellsWhatDecidesTheTimeOfACall) {
  Log log;
  const auto meta = make_meta_kernels();
  const auto observed = make_observed_kernels(*meta, log);
  const auto view = [](const Shape& shape) { return TensorView{nullptr, DType::BFloat16, shape}; };
  observed->matmul({.a = view({5, 7}), .b = view({5, 3}), .out = view({7, 3}), .transpose_a = true, .accumulate = true});
  observed->gelu({.x = view({2, 6}), .y = view({2, 6})});
  observed->attention({.qkv = view({2, 16, 64}),
                       .out = view({2, 16, 32}),
                       .log_sum_exp = {nullptr, DType::Float32, {2, 4, 16}},
                       .heads = 4,
                       .key_value_heads = 2});
  ASSERT_EQ(log.products.size(), 1);
  EXPECT_EQ(log.products[0].b.shape, (Shape{5, 3}));
  EXPECT_TRUE(log.products[0].accumulate);
  ASSERT_EQ(log.calls.size(), 3);
  const KernelCall& product = log.calls[0];
  EXPECT_EQ(product.kernel, "matmul");
  EXPECT_EQ(product.variant, "tn+");
  EXPECT_EQ(product.dtype, DType::BFloat16);
  EXPECT_EQ(product.sizes, (std::array<int64_t, 5>{7, 3, 5}));
  EXPECT_EQ(product.flops, 2 * 7 * 3 * 5);
  EXPECT_EQ(log.calls[1].sizes, (std::array<int64_t, 5>{12}));
  EXPECT_EQ(log.calls[2].sizes, (std::array<int64_t, 5>{2, 16, 4, 2, 8}));
  double flops = 0, bytes = 0;
  for (const KernelCall& call : log.calls) flops += call.flops, bytes += call.bytes;
  EXPECT_EQ(flops, observed->counters().flops);
  EXPECT_EQ(bytes, observed->counters().bytes);
}

// Results are those of the kernels that are observed.
TEST(ObservedKernels, PassesCallsOn) {
  Log log;
  const auto cpu = make_cpu_kernels(1);
  const auto observed = make_observed_kernels(*cpu, log);
  float x[4] = {1, 2, 3, 4}, y[4] = {};
  const TensorView from{x, DType::Float32, {4}}, to{y, DType::Float32, {4}};
  observed->copy(from, to);
  observed->scale(to, 2);
  observed->add(from, to);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y[i], 3 * x[i]);
  EXPECT_EQ(observed->device(), Device::Cpu);
  ASSERT_EQ(log.calls.size(), 3);
  EXPECT_EQ(log.calls[0].bytes, 32);
}

}  // namespace
}  // namespace trivet::kernels::observed_kernels_test
