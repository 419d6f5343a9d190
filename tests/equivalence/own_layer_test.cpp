// A user's own layer that tensor ranks share runs through the engine. It declares how its parameters are split, and consists of
// layers that know the tensor axis.
#include <gtest/gtest.h>

#include "model/linear.h"
#include "model/sub_layers.h"
#include "tensor_parallel/token_gather.h"
#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

// y[B, S, H] = (x W^T + a) V^T + b through F hidden values: W[F, H] is column-parallel, V[H, F] row-parallel.
class TwoProducts final : public Layer {
 public:
  TwoProducts(int64_t hidden, int64_t wide)
      : up_({.in = hidden, .out = wide, .init_deviation = 0.2, .split = {0, {wide}}}),
        down_({.in = wide, .out = hidden, .init_deviation = 0.2, .split = {1, {wide}}}),
        up_index_(sub_layers_.add("up", up_)),
        down_index_(sub_layers_.add("down", down_)) {}

  std::span<const ParameterSpec> parameters() const override { return sub_layers_.parameters(); }
  Shape output_shape(const Shape& input) const override { return input; }
  bool allows_sequence_parallelism() const override { return true; }

  void forward(Context& context, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    Shape wide = tensor_parallel::all_tokens(context, x.shape);
    wide[-1] = sub_layers_.of(up_index_, weights)[0].shape[0];  // the rank's part of F
    const TensorView h = saved.keep(context.arena, kH, x.dtype, wide);
    up_.forward(context, sub_layers_.of(up_index_, weights), x, h, saved.child(up_index_));
    down_.forward(context, sub_layers_.of(down_index_, weights), h, y, saved.child(down_index_));
  }
  void backward_input(Context& context, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    const TensorView dh = saved.keep(context.arena, kDh, dy.dtype, saved[kH].shape);
    down_.backward_input(context, sub_layers_.of(down_index_, weights), dy, dh, saved.child(down_index_));
    up_.backward_input(context, sub_layers_.of(up_index_, weights), dh, dx, saved.child(up_index_));
  }
  void backward_weight(Context& context, Gradients gradients, const Saved& saved) const override {
    down_.backward_weight(context, sub_layers_.of(down_index_, gradients), saved.child(down_index_));
    up_.backward_weight(context, sub_layers_.of(up_index_, gradients), saved.child(up_index_));
  }

 private:
  enum Slot { kH, kDh };

  model::Linear up_, down_;
  model::SubLayers sub_layers_;
  int up_index_, down_index_;
};

// Inserts the layer between the two blocks. Its 44 hidden values form chunks of 5 and 6.
void insert_own_layer(model::Model& model) {
  model.layers.insert(model.layers.begin() + 2, std::make_unique<TwoProducts>(32, 44));
  model.names.insert(model.names.begin() + 2, "own");
}

Trace run_with_own_layer(int ranks, const Config& config) {
  return run({.ranks = ranks, .steps = 3, .change = insert_own_layer, .config = config});
}

TEST(OwnLayer, OnTensorRanksGivesTheBitsOfOneRankInLayoutMode) {
  for (const bool bf16 : {false, true}) {
    Config config = tiny_config(model::Type::Gpt);
    config.bf16.enabled = bf16;
    config.reproducible = Reproducible::Layout;
    const Trace one = run_with_own_layer(1, config);
    EXPECT_TRUE(one.weights.contains("own.up.weight"));
    config.parallel.tensor = 2;
    EXPECT_EQ(difference(one, run_with_own_layer(2, config)), "");
    config.parallel.pipeline = 2;
    config.zero.stage = 3;
    config.recompute = Recompute::Full;
    EXPECT_EQ(difference(one, run_with_own_layer(8, config)), "");
    config.parallel.tensor = 4;
    EXPECT_EQ(difference(one, run_with_own_layer(8, config)), "");
  }
}

TEST(OwnLayer, OnTensorRanksAgreesWithOneRankButForRounding) {
  Config config = tiny_config(model::Type::Gpt);
  const Trace one = run_with_own_layer(1, config);
  config.parallel.tensor = 2;
  for (const bool sequence_parallel : {false, true}) {
    config.parallel.sequence_parallel = sequence_parallel;
    const Trace shared = run_with_own_layer(2, config);
    EXPECT_EQ(difference_beyond_rounding(one, shared), "") << "sequence parallel " << sequence_parallel;
    Config stages = config;
    stages.parallel.pipeline = 2;
    EXPECT_EQ(difference(shared, run_with_own_layer(4, stages)), "") << "sequence parallel " << sequence_parallel;
  }
}

}  // namespace
}  // namespace trivet::test
