// Sizes of published mixtures of experts, and what is wrong with others.
#include <gmock/gmock.h>

#include <functional>

#include "model/count_flops.h"
#include "model/expert_mlp.h"
#include "model/family.h"
#include "model/lora.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

Description published(int64_t layers, int64_t hidden, int64_t heads, int64_t key_value_heads, int64_t vocabulary,
                      const Experts& experts) {
  return {.type = Type::Llama,
          .layers = layers,
          .hidden_size = hidden,
          .heads = heads,
          .key_value_heads = key_value_heads,
          .head_size = 128,
          .sequence_length = 4096,
          .vocabulary_size = vocabulary,
          .tied_embedding = false,
          .experts = experts};
}

// Totals are those of the models' pages; GFLOPs are 3 (2 (active - embedding) + 2 layers S N D / 2 ...), the rule of the
// throughput that Megatron-Bridge publishes.
TEST(ExpertModels, HaveTheSizesAndWorkThatArePublished) {
  const Description mixtral = published(32, 4096, 32, 8, 32000, {.count = 8, .per_token = 2, .feed_forward_size = 14336});
  Description qwen = published(48, 2048, 32, 4, 151936, {.count = 128, .per_token = 8, .feed_forward_size = 768});
  qwen.qk_norm = true;
  struct Case {
    Description description;
    int64_t total, active;
    double gflops;
  };
  for (const Case& c : {Case{mixtral, 46'702'792'704, 12'879'925'248, 79.71}, {qwen, 30'532'122'624, 3'353'032'704, 23.08}}) {
    const Model model = build(c.description);
    EXPECT_EQ(parameter_count(model), c.total);
    EXPECT_EQ(active_parameter_count(model), c.active);
    EXPECT_NEAR(flops_per_sample(model) / 4096 / 1e9, c.gflops, 0.01);
  }
}

// The kernels' own count is the same as the formula's: rows of experts are K for each token, whatever a router decides.
TEST(ExpertModels, CountTheSameWorkInKernels) {
  Description small = published(2, 64, 4, 2, 512, {.count = 8, .per_token = 3, .feed_forward_size = 48});
  small.head_size = 16;
  small.sequence_length = 32;
  const Model model = build(small);
  double counted = 0;
  for (const LayerFlops& layer : count_flops(model, 1)) counted += layer.products;
  EXPECT_NEAR(counted, model.stated_flops_per_sample, 0.03 * model.stated_flops_per_sample);
}

TEST(ExpertModels, WithImpossibleSizesAreRefusedByName) {
  using Change = std::function<void(Description&)>;
  const std::pair<const char*, Change> cases[] = {
      {"experts.per_token", [](Description& d) { d.experts.per_token = 9; }},
      {"experts.groups", [](Description& d) { d.experts.rule.groups = 3; }},
      {"experts.groups_per_token", [](Description& d) { d.experts.rule.groups_per_token = 2; }},
      {"experts.per_token", [](Description& d) { d.experts.rule.groups = 8; }},
      {"experts.dense_blocks", [](Description& d) { d.experts.dense_blocks = {2}; }},
      {"experts.count", [](Description& d) { d.gate_activation = GateActivation::Gelu; }},
      {"experts.balance_loss",
       [](Description& d) {
         d.objective = Objective::Dpo;
         d.experts.balance_loss = 0.01;
       }},
      {"experts.z_loss",
       [](Description& d) {
         d.objective = Objective::Sft;
         d.experts.z_loss = 0.01;
         d.token_drop.enabled = true;
       }},
      {"experts.bias_update_rate",
       [](Description& d) {
         d.objective = Objective::Dpo;
         d.experts.correction_bias = true;
       }},
      {"lora.targets",
       [](Description& d) {
         d.lora = {.rank = 2, .targets = {"q_proj", "gate_proj"}};
       }},
  };
  const Description right = published(2, 64, 4, 2, 512, {.count = 8, .per_token = 2, .feed_forward_size = 48});
  EXPECT_FALSE(find_problem(right));
  for (const auto& [key, change] : cases) {
    Description wrong = right;
    change(wrong);
    const auto problem = find_problem(wrong);
    ASSERT_TRUE(problem) << key;
    EXPECT_EQ(problem->key, key) << problem->text;
  }
}

TEST(ExpertModels, AdaptersOfAllLinearLayersAreInAttentionAndDenseBlocks) {
  Description d = published(2, 64, 4, 2, 512, {.count = 8, .per_token = 2, .feed_forward_size = 48, .dense_blocks = {1}});
  d.lora = {.rank = 2, .targets = {"all-linear"}};
  const Model model = build(d);
  int adapted = 0;
  for (const auto& layer : model.layers)
    for (const ParameterSpec& parameter : layer->parameters()) adapted += parameter.trainable ? 1 : 0;
  EXPECT_EQ(adapted, 2 * 4 + 2 * 7);  // two matrices for each: q, k, v and o; in the dense block also gate, up and down
}

TEST(ExpertModels, TargetsThatEndLikeAMatrixOfExpertsNameIt) {
  Description d = published(2, 64, 4, 2, 512, {.count = 8, .per_token = 2, .feed_forward_size = 48, .dense_blocks = {1}});
  const auto adapters = [&](const std::string& target) {
    d.lora = {.rank = 2, .targets = {target}};
    std::vector<std::string> names;
    const Model model = build(d);
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
      for (const ParameterSpec& parameter : model.layers[layer]->parameters())
        if (parameter.name.ends_with("lora_b"))
          names.push_back(model.names[layer] + "." + parameter.name + " " + to_string(parameter.shape));
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(adapters("down_proj"),
              ElementsAre("blocks.0.mlp.experts.down.lora_b [512, 2]", "blocks.1.mlp.down.lora_b [64, 2]"));
  EXPECT_EQ(adapters("layers.1.mlp.up_proj.weight").size(), 1U);
  d.lora.targets = {"o_proj", "experts.down_proj"};
  EXPECT_EQ(lora_in_words(d), "rank 2 on 2 linear layers and 8 matrices of experts");
  EXPECT_THAT(adapters("mlp.experts.gate_up"), ElementsAre("blocks.0.mlp.experts.gate_up.lora_b [768, 2]"));
  EXPECT_THAT(adapters(".*layers.0.mlp.*"),
              ElementsAre("blocks.0.mlp.experts.gate_up.lora_b [768, 2]", "blocks.0.mlp.experts.down.lora_b [512, 2]"));
  d.experts.shared_feed_forward_size = 24;
  EXPECT_THAT(adapters("shared_expert.up_proj|shared.down"),
              ElementsAre("blocks.0.mlp.shared.gate_up.up.lora_b [24, 2]", "blocks.0.mlp.shared.down.lora_b [64, 2]"));
  EXPECT_EQ(adapters("all-linear").size(), 4U + 3U + 7U);
  for (const char* target : {"gate_proj", "up_proj|mlp.experts.down_proj"}) {
    d.lora.targets = {target};
    EXPECT_THAT(
        find_problem(d)->text,
        testing::HasSubstr("would leave experts out, whose gate and up are one matrix; name \"mlp.experts.gate_up_proj\""));
  }
}

// Only tokens whose targets are masked have the first feature, so it has no gradient, and the others' is that of their losses.
TEST(ExpertLosses, AreThoseOfTokensWhoseTargetsCount) {
  constexpr int64_t kCount = 6, kWidth = 3, kRouted = 4;
  const auto router_gradient = [&](double balance, double z_loss, std::vector<int32_t> targets) {
    const ExpertMlp layer(
        {.hidden = kWidth, .experts = kRouted, .chosen = 2, .feed_forward = 2, .balance = balance, .z_loss = z_loss});
    MemoryMeter meter;
    Arena arena("activations", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
    const auto kernels = kernels::make_cpu_kernels(1);
    Values x, y(kCount * kWidth), dx(kCount * kWidth), dy(kCount * kWidth, 0);
    for (int64_t t = 0; t < kCount; ++t)
      for (int64_t i = 0; i < kWidth; ++i)
        x.push_back(i == 0 && targets[t] >= 0 ? 0 : std::sin(static_cast<double>(3 * t + 2 * i + 1)));
    const Microbatch microbatch{{}, {targets.data(), DType::Int32, {1, kCount}}};
    Context context{*kernels, arena};
    context.microbatch = &microbatch;
    std::vector<Values> weights, gradients;
    std::vector<ConstTensorView> weight_views;
    std::vector<Gradient> gradient_views;
    for (const ParameterSpec& spec : layer.parameters()) {
      weights.emplace_back();
      for (int64_t e = 0; e < spec.shape.elements(); ++e) weights.back().push_back(std::cos(static_cast<double>(e) * 1.7));
      gradients.emplace_back(weights.back().size());
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      weight_views.push_back(view_of(weights[i], layer.parameters()[i].shape));
      gradient_views.push_back({view_of(gradients[i], layer.parameters()[i].shape), false});
    }
    Saved saved;
    const Shape shape{1, kCount, kWidth};
    layer.forward(context, weight_views, view_of(x, shape), view_of(y, shape), saved);
    layer.backward(context, weight_views, gradient_views, view_of(dy, shape), view_of(dx, shape), saved);
    return gradients[0];
  };
  const std::vector<int32_t> masked{4, -1, 0, -1, -1, 2}, none{4, 1, 0, 1, 1, 2};
  for (const auto& [balance, z_loss] : {std::pair(0.5, 0.0), {0.0, 0.5}}) {
    const Values with_mask = router_gradient(balance, z_loss, masked), without = router_gradient(balance, z_loss, none);
    double others = 0;
    for (int64_t e = 0; e < kRouted; ++e) {
      EXPECT_EQ(with_mask[e * kWidth], 0);
      others += std::abs(with_mask[e * kWidth + 1]);
    }
    EXPECT_GT(others, 1e-3);
    EXPECT_NE(with_mask[1], without[1]);
  }
}

TEST(ExpertModels, AreSharedByTensorRanksThatDivideTheirWidth) {
  Description d = published(2, 64, 8, 8, 512, {.count = 3, .per_token = 2, .feed_forward_size = 12});
  EXPECT_EQ(tensor_problem(d, 4), "");
  EXPECT_EQ(tensor_problem(d, 8), "does not divide model.experts.feed_forward_size 12");
}

}  // namespace
}  // namespace trivet::model
