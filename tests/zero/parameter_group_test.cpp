#include "zero/parameter_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"

namespace trivet::zero {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Group {
  std::vector<ParameterSpec> specs{{.name = "weight", .shape = {3, 5}}};
  ShardLayout layout = make_shard_layout({{"net", specs}}, {.ranks = 1});
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels(1);
  std::unique_ptr<Stream> stream = make_inline_stream();
  std::unique_ptr<comm::ProcessGroup> single = comm::make_single_group("single");
  MemoryMeter meter;
  int64_t refused = 0;
  Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 16};
  ParameterGroup group;

  explicit Group(int contributions)
      : group(layout.blocks[0].groups[0], {.fixed_point = true, .fixed_point_terms = 4, .contributions = contributions},
              {.kernels = *kernels,
               .allocator = host_allocator(),
               .meter = meter,
               .buffers = buffers,
               .gather_group = *single,
               .gather_stream = *stream,
               .reduce_group = *single,
               .reduce_stream = *stream,
               .collectives = {},
               .refused = {&refused, DType::Int64, {1}}}) {
    group.begin_step();
  }
  void contribute(float value) {
    const TensorView gradient = group.gradient(0).view;
    for (int e = 0; e < 15; ++e) gradient.as<float>()[e] = value * static_cast<float>(e);
    group.end_contribution(0.5);
  }
  double element(int64_t e) {
    group.reduce();
    group.retire();
    const ConstTensorView stored = group.owned().gradient;
    return stored.dtype == DType::Int64 ? static_cast<double>(stored.as<int64_t>()[e]) * 0x1p-44
                                        : static_cast<double>(stored.as<float>()[e]);
  }
};

TEST(ParameterGroup, AGradientOfOneContributionIsFloat32OfTheSameValue) {
  Group one(1), any(0);
  one.contribute(3.0f);
  any.contribute(3.0f);
  EXPECT_EQ(one.element(7), 10.5);
  EXPECT_EQ(any.element(7), 10.5);
  EXPECT_EQ(one.group.owned().gradient.dtype, DType::Float32);
  EXPECT_EQ(any.group.owned().gradient.dtype, DType::Int64);
  EXPECT_LT(one.meter.now().total(), any.meter.now().total());
  EXPECT_EQ(one.refused + any.refused, 0);
}

TEST(ParameterGroup, CountsContributionsThatDoNotFitOnTheGrid) {
  for (const int contributions : {0, 1}) {
    Group group(contributions);
    group.contribute(1e30f);
    EXPECT_EQ(group.refused, 14);  // element 0 is 0
  }
}

TEST(ParameterGroup, AnyNumberOfContributionsIsSummed) {
  Group any(0);
  for (const float value : {1.0f, 2.0f, 4.0f}) any.contribute(value);
  EXPECT_EQ(any.element(14), 49.0);
}

TEST(ParameterGroup, MoreContributionsThanWereSaidAreRefused) {
  Group one(1);
  one.contribute(1.0f);
  EXPECT_THAT([&] { one.contribute(1.0f); },
              ThrowsMessage<std::logic_error>(HasSubstr("net.weight gets a second contribution")));
}

}  // namespace
}  // namespace trivet::zero
