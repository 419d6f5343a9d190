// MLPs that work on a slice of tokens at a time compute what those do that work on all of them, in the memory of one slice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

struct Variant {
  const char* name;
  Mlp::Options options;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"gelu", {.hidden = 8, .feed_forward = 12}},
      {"swiglu", {.hidden = 8, .feed_forward = 12, .activation = Activation::SwiGlu, .bias = false}},
      {"gelu adapted", {.hidden = 8, .feed_forward = 12, .up_adapters = {3, 0.5, {{}}}, .down_adapters = {3, 0.5, {{}}}}},
      {"geglu adapted",
       {.hidden = 8,
        .feed_forward = 12,
        .activation = Activation::GeGlu,
        .up_adapters = {2, 0.5, {{"gate", 0}, {"up", 1}}},
        .down_adapters = {3, 0.5, {{}}}}}};
  return all;
}

// 14 tokens: slices that divide them and slices that do not, of parts of a sequence and over the end of one.
constexpr int64_t kSlices[] = {1, 4, 7, 100};
const Shape kInput{2, 7, 8};

// The two differ by the order of sums over tokens (layer_on_ranks.h).
TEST(MlpSlices, GiveTheResultsOfAllTokensAtOnce) {
  for (const auto& [name, options] : variants())
    for (const Way way : {Way::Fused, Way::Apart, Way::Accumulated, Way::Evaluated}) {
      const Mlp mlp(options);
      const Outcome whole = run_layer(mlp, {.input_shape = kInput}, way, nullptr);
      for (const int64_t tokens : kSlices) {
        const std::string where = fmt::format(" of {} in slices of {}, way {}", name, tokens, static_cast<int>(way));
        const Outcome sliced = run_layer(mlp, {.input_shape = kInput, .mlp_slice_tokens = tokens}, way, nullptr);
        expect_near(sliced.y, whole.y, "y" + where);
        if (way == Way::Evaluated) continue;
        expect_near(sliced.dx, whole.dx, "dx" + where);
        for (size_t i = 0; i < whole.gradients.size(); ++i)
          expect_near(sliced.gradients[i], whole.gradients[i], mlp.parameters()[i].name + where);
      }
    }
}

TEST(MlpSlices, AreAsOnOneRank) {
  for (const int size : {2, 4})
    for (const auto& [name, options] : variants()) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, size));
      const LayerCase it{.input_shape = {2, 8, 8}, .mlp_slice_tokens = 5};
      expect_as_one_rank(Mlp(options), it, size);
      expect_as_one_rank_in_parts(Mlp(options), it, size);
      expect_as_one_rank_in_parts(Mlp(options), it, size, Axis::Context);
    }
}

// Sums over ranks and gathers of tokens are those of the slices: as much in all, but each in memory for one slice.
TEST(MlpSlices, NeedTheMemoryOfOneSlice) {
  for (const Variant& variant : {variants()[0], variants()[1]})
    for (const Way way : {Way::Fused, Way::Evaluated})
      for (const bool sequence_parallel : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, way {}, {}", variant.name, static_cast<int>(way), sequence_parallel));
        const Mlp mlp(variant.options);
        const auto run = [&](int64_t sequence, int64_t slice) {
          return run_ranks(mlp, {.input_shape = {1, sequence, 8}, .mlp_slice_tokens = slice}, way, 2, sequence_parallel)[0];
        };
        const Outcome all = run(176, 0), sliced = run(176, 16), slice = run(16, 0);
        EXPECT_EQ(sliced.peak_bytes, slice.peak_bytes);
        EXPECT_LT(sliced.peak_bytes, all.peak_bytes / 10);
        if (way == Way::Evaluated) {
          EXPECT_EQ(sliced.traffic.bytes_sent, all.traffic.bytes_sent);
        }
      }
}

// What backward_weight reads of each slice is kept until then: the memory that was released is overwritten in between.
TEST(MlpSlices, HaveEqualBitsIfWeightGradientsComeLater) {
  for (const Type type : {Type::Gpt, Type::Llama}) {
    Description description;
    description.type = type;
    description.vocabulary_size = 19;
    description.layers = 2;
    description.hidden_size = 16;
    description.heads = 2;
    description.sequence_length = 6;
    const Batch batch = random_batch(2, 6, 19, 4);
    WholeModel together(description, DType::Float32, Device::Cpu), apart(description, DType::Float32, Device::Cpu);
    together.mlp_slice_tokens = apart.mlp_slice_tokens = 5;
    EXPECT_EQ(together.train(batch), apart.train(batch, false));
    for (const std::string& name : together.parameter_names())
      EXPECT_EQ(values_of(together.gradient(name)), values_of(apart.gradient(name))) << name;
  }
}

}  // namespace
}  // namespace trivet::model
