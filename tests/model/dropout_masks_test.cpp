// Tests which activations of a block are dropped: every dropout site of a model draws a mask of its own.
#include <gtest/gtest.h>

#include <set>

#include "kernels/kernels.h"
#include "model/transformer_block.h"

namespace trivet::model {
namespace {

constexpr int64_t kHidden = 64, kTokens = 128;

// Tells for each element of an activation whether the output of attention (bit 0) and that of the MLP (bit 1) was dropped.
struct DroppedElements {
  std::vector<int> of_element;
  double share_of(int dropped) const {
    return static_cast<double>(std::count(of_element.begin(), of_element.end(), dropped)) /
           static_cast<double>(of_element.size());
  }
};

// All weights are zero, so attention gives the bias of its output projection, 1, and the MLP the bias of its own, 2. At a rate
// of 0.5, kept values are doubled: y = 2 [attention kept] + 4 [MLP kept] tells which were kept.
DroppedElements dropped_in(const std::string& block_name, double step = 0) {
  const TransformerBlock block(block_name, {.attention = {.hidden = kHidden, .heads = 2, .key_value_heads = 2, .dropout = 0.5},
                                            .mlp = {.hidden = kHidden, .feed_forward = 8},
                                            .dropout = 0.5});
  std::vector<std::vector<float>> values;
  std::vector<ConstTensorView> weights;
  for (const ParameterSpec& parameter : block.parameters()) {
    const float value = parameter.name == "attention.out.bias" ? 1.0f : parameter.name == "mlp.down.bias" ? 2.0f : 0.0f;
    values.emplace_back(parameter.shape.elements(), value);
  }
  for (size_t i = 0; i < values.size(); ++i) weights.push_back({values[i].data(), DType::Float32, block.parameters()[i].shape});
  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("activations", host_allocator(), meter, MemoryCategory::Activations, 1 << 24);
  Context context{*kernels, arena, nullptr, {1, step, 0}, true};
  const Shape shape{1, kTokens, kHidden};
  std::vector<float> x(shape.elements()), y(x.size());
  Saved saved;
  block.forward(context, weights, {x.data(), DType::Float32, shape}, {y.data(), DType::Float32, shape}, saved);
  DroppedElements dropped;
  for (const float value : y) {
    EXPECT_TRUE((std::set<float>{0, 2, 4, 6}.contains(value))) << value;
    const int kept = static_cast<int>(value) / 2;
    dropped.of_element.push_back(3 - kept);
  }
  return dropped;
}

// With 8192 elements, the share of each of the four cases is within 0.02 of a quarter, which is four standard deviations.
TEST(DropoutMasks, ThoseOfTheTwoBranchesOfABlockAreIndependent) {
  const DroppedElements dropped = dropped_in("blocks.0");
  for (const int which : {0, 1, 2, 3}) EXPECT_NEAR(dropped.share_of(which), 0.25, 0.02) << which;
}

TEST(DropoutMasks, BlocksAndStepsHaveTheirOwn) {
  const auto here = dropped_in("blocks.0").of_element;
  EXPECT_EQ(here, dropped_in("blocks.0").of_element);
  EXPECT_NE(here, dropped_in("blocks.1").of_element);
  EXPECT_NE(here, dropped_in("blocks.0", 1).of_element);
}

}  // namespace
}  // namespace trivet::model
