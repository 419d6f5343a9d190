// Tests that gradients of gains which all heads share do not depend on how many tensor ranks share the heads.
#include "model/qk_norm.h"

#include <gtest/gtest.h>

#include "core/stream.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

std::vector<Outcome> in_layout_mode(const Layer& layer, const LayerCase& it, Way way, int size) {
  std::vector<Outcome> outcomes(size);
  comm::run_threads(size, [&](comm::World& world) {
    const auto stream = make_thread_stream("tensor");
    const RankAxis axis{.group = world.group(), .stream = *stream, .fixed_sums = true};
    outcomes[world.rank()] = run_layer(layer, it, way, &axis);
    stream->synchronize();
    world.close();
  });
  return outcomes;
}

// 12 heads are 1 or 2 for each of the 8 chunks in which heads are summed.
TEST(QkNorm, GradientsHaveTheBitsOfOneRankInLayoutMode) {
  const Attention attention(
      "a",
      {.hidden = 24, .heads = 24, .key_value_heads = 12, .head_size = 4, .bias = false, .rotary_base = 100, .qk_norm = true});
  const LayerCase it{.input_shape = {2, 5, 24}};
  for (Way way : {Way::Fused, Way::Apart, Way::Accumulated}) {
    const Outcome one = in_layout_mode(attention, it, way, 1)[0];
    ASSERT_EQ(one.gradients.size(), 4u);
    for (int size : {2, 4})
      for (const Outcome& rank : in_layout_mode(attention, it, way, size)) {
        EXPECT_EQ(rank.y, one.y) << size;
        EXPECT_EQ(rank.dx, one.dx) << size;
        EXPECT_EQ(rank.gradients[2], one.gradients[2]) << size;
        EXPECT_EQ(rank.gradients[3], one.gradients[3]) << size;
      }
  }
}

}  // namespace
}  // namespace trivet::model
