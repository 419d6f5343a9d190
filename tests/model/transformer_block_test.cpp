// What a block keeps, and for how long. Its results are tested with those of whole models.
#include "model/transformer_block.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/kernels.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

// Runs a block without memory.
struct BlockOnPaper {
  const TransformerBlock block;
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_meta_kernels();
  Arena arena{"block"};
  Saved saved;
  Context context{.kernels = *kernels, .arena = arena};
  std::vector<ConstTensorView> weights;
  std::vector<Gradient> gradients;
  ConstTensorView x{nullptr, DType::Float32, {2, 64, 32}};

  explicit BlockOnPaper(const TransformerBlock::Options& options) : block("b", options) {
    for (const ParameterSpec& spec : block.parameters()) {
      weights.push_back({nullptr, DType::Float32, spec.shape});
      gradients.push_back({{nullptr, DType::Float32, spec.shape}, true});
    }
  }
  TensorView like_x() const { return {nullptr, x.dtype, x.shape}; }
  double flops(const std::function<void()>& work) {
    const double before = kernels->counters().flops;
    work();
    return kernels->counters().flops - before;
  }
  void forward() { block.forward(context, weights, x, like_x(), saved); }
  void again() { block.forward_again(context, weights, x, saved); }
  void backward() { block.backward(context, weights, gradients, like_x(), like_x(), saved); }
};

// Neither the product at the end of the MLP nor the sum after it. With a norm after the MLP, backward reads the product.
TEST(TransformerBlock, ComputesAgainOnlyWhatBackwardReads) {
  TransformerBlock::Options normed = llama_block(0, 4);
  normed.post_norm = true;
  for (const auto& [options, leaves_out_down] : {std::pair(llama_block(0, 4), true), std::pair(normed, false)}) {
    BlockOnPaper first(options), again(options);
    const int64_t feed_forward = options.mlp.feed_forward;
    const double elements = 2 * 64 * 32, down = leaves_out_down ? 2 * elements * static_cast<double>(feed_forward) : 0;
    EXPECT_EQ(first.flops([&] { first.forward(); }) - again.flops([&] { again.again(); }), down + 2 * elements);
    EXPECT_EQ(first.arena.used_bytes(), again.arena.used_bytes());
    EXPECT_EQ(first.flops([&] { first.backward(); }), again.flops([&] { again.backward(); }));
  }
}

// What the MLP has kept is released before attention's backward needs memory, so nothing is left in the end.
TEST(TransformerBlock, ReleasesWhatItsHalvesHaveKeptWithTheirBackward) {
  BlockOnPaper run(llama_block(0, 4));
  run.forward();
  EXPECT_GT(run.arena.used_bytes(), 0);
  run.backward();
  EXPECT_EQ(run.arena.used_bytes(), 0);
}

}  // namespace
}  // namespace trivet::model
