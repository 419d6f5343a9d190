// Reads and writes models with an MLP beside their experts: with a gate (Qwen 2), and with the routers of DeepSeek-V3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/same_model.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class SharedExperts : public testing::Test {
 protected:
  using Tensors = std::map<std::string, Shape>;
  static DescribedModel describe(const std::string& config, const std::string& member = R"("use_cache": true)") {
    return describe_model(config.substr(0, config.rfind('}')) + ", " + member + "}", "c.json");
  }
  static void expect_refused(const std::string& config, const std::string& member, const std::string& message) {
    EXPECT_THAT([&] { describe(config, member); }, ThrowsMessage<ConfigError>(HasSubstr("c.json: " + message)));
  }
  static std::string with(std::string config, const std::string& member, const std::string& value) {
    const size_t at = config.find("\"" + member + "\": ") + member.size() + 4;
    return config.replace(at, config.find_first_of(",}", at) - at, value);
  }
  PretrainedModel open(const std::string& config, const Tensors& tensors) {
    write_model(files, "/model", config, file_of(tensors));
    return {files, "/model"};
  }
  std::vector<float> elements(const checkpoint::TensorSource& source, const std::string& name) {
    const Shape shape = source.find(name)->shape;
    std::vector<float> data(static_cast<size_t>(shape.elements()));
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece(name, shape, 0, {data.data(), DType::Float32, {shape.elements()}});
    source.read({&piece, 1});
    return data;
  }

  support::MemoryFileSystem files;
};

TEST_F(SharedExperts, ReadsTheKeysOfQwen2) {
  const model::Description d = describe(small_qwen2_moe()).config.model;
  EXPECT_EQ(d.experts.shared_feed_forward_size, 5);
  EXPECT_TRUE(d.experts.shared_gate && d.qkv_bias && !d.qk_norm && !d.experts.rule.normalize && !d.experts.correction_bias);
  EXPECT_FALSE(describe(small_qwen2_moe(), R"("qkv_bias": false)").config.model.qkv_bias);
  EXPECT_TRUE(describe(small_qwen2_moe(), R"("norm_topk_prob": true)").config.model.experts.rule.normalize);
  const model::Experts usual = describe(small_llama_as("qwen2_moe")).config.model.experts;
  EXPECT_EQ(usual.count, 60);
  EXPECT_EQ(usual.per_token, 4);
  EXPECT_EQ(usual.feed_forward_size, 1408);
  EXPECT_EQ(usual.shared_feed_forward_size, 5632);
  const std::string deep = with(small_qwen2_moe(), "num_hidden_layers", "4");
  EXPECT_THAT(describe(deep, R"("decoder_sparse_step": 2, "mlp_only_layers": [3])").config.model.experts.dense_blocks,
              ElementsAre(0, 2, 3));
  expect_refused(deep, R"("mlp_only_layers": [0, 1, 2, 3])",
                 "mlp_only_layers: [0,1,2,3] is not accepted; at least one layer must have experts; a model without any is of "
                 "the type \"qwen2\"");
  expect_refused(deep, R"("use_sliding_window": true)", "use_sliding_window: true is not accepted; use false");
  EXPECT_EQ(describe(deep, R"("sliding_window": 3, "max_window_layers": 2)").config.model.attention_window, 0);
}

TEST_F(SharedExperts, ReadsTheKeysOfDeepSeeksRouters) {
  for (const std::string& config : {small_dots1(), small_glm4_moe()}) {
    const model::Experts experts = describe(config).config.model.experts;
    EXPECT_EQ(experts.count, 4);
    EXPECT_EQ(experts.shared_feed_forward_size, 5);
    EXPECT_EQ(experts.rule,
              (kernels::ExpertRule{.score = kernels::ExpertScore::Sigmoid, .scale = 2.5, .groups = 2, .groups_per_token = 1}));
    EXPECT_TRUE(experts.correction_bias && !experts.shared_gate);
    EXPECT_EQ(experts.bias_update_rate, 0) << "transformers keeps the biases";
    const std::string deep = with(with(config, "num_hidden_layers", "5"), "first_k_dense_replace", "3");
    EXPECT_THAT(describe(deep).config.model.experts.dense_blocks, ElementsAre(0, 1, 2));
    EXPECT_EQ(describe(with(config, "n_shared_experts", "3")).config.model.experts.shared_feed_forward_size, 15);
    EXPECT_THAT(describe(config, R"("num_local_experts": 4)").notes, IsEmpty());
    expect_refused(config, R"("num_local_experts": 8)", "n_routed_experts: 4 is not accepted; num_local_experts is 8");
    EXPECT_THAT([&] { describe(with(config, "first_k_dense_replace", "1")); },
                ThrowsMessage<ConfigError>(HasSubstr("first_k_dense_replace: 1 is not accepted; use less than "
                                                     "num_hidden_layers 1: at least one layer must have experts")));
    EXPECT_THAT([&] { describe(with(config, "n_shared_experts", "0")); },
                ThrowsMessage<ConfigError>(HasSubstr("n_shared_experts: 0 is not accepted")));
  }
  EXPECT_THAT([] { describe(small_llama_as("dots1")); }, ThrowsMessage<ConfigError>(HasSubstr("n_shared_experts")));
  EXPECT_EQ(describe(with(small_llama_as("glm4_moe"), "num_hidden_layers", "2")).config.model.experts.count, 128);
}

TEST_F(SharedExperts, ReadsTheOtherKeysOfDots1) {
  const std::string dots = small_dots1();
  EXPECT_TRUE(describe(dots).config.model.qk_norm);
  EXPECT_EQ(describe(dots).config.model.attention_window, 0) << "the first 62 layers have none";
  EXPECT_EQ(describe(dots, R"("sliding_window": 3, "max_window_layers": 0)").config.model.attention_window, 3);
  EXPECT_EQ(describe(dots, R"("sliding_window": 3, "layer_types": ["sliding_attention"])").config.model.attention_window, 3);
  EXPECT_EQ(describe(dots, R"("sliding_window": null, "max_window_layers": 0)").config.model.attention_window, 0);
  EXPECT_THAT([&] { describe(with(dots, "num_hidden_layers", "63")); },
              ThrowsMessage<ConfigError>(HasSubstr("num_hidden_layers: 63 is not accepted; state layer_types")));
  expect_refused(dots, R"("attention_bias": true)", "attention_bias: true is not accepted; use false");
}

TEST_F(SharedExperts, ReadsTheOtherKeysOfGlm4) {
  const model::Description d = describe(small_glm4_moe()).config.model;
  EXPECT_TRUE(d.qkv_bias && !d.qk_norm);
  EXPECT_EQ(d.rotary_share, 0.5) << "the class's default";
  EXPECT_TRUE(describe(small_glm4_moe(), R"("use_qk_norm": true)").config.model.qk_norm);
  EXPECT_EQ(describe(small_glm4_moe(), R"("partial_rotary_factor": 1.0)").config.model.rotary_share, 1);
  EXPECT_EQ(
      describe(small_glm4_moe(), R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})").config.model.rotary_share,
      0.5);
}

TEST_F(SharedExperts, BiasesAreReadAndMayNotBeAbsent) {
  const PretrainedModel dots = open(small_dots1(), small_dots1_tensors());
  const ModelFiles theirs(files, "/model");
  const std::string name = "model.layers.0.mlp.gate.e_score_correction_bias";
  EXPECT_EQ(elements(dots.weights(), "blocks.0.mlp.router.correction_bias"), elements(theirs, name));
  EXPECT_EQ(elements(dots.weights(), "blocks.0.mlp.shared.down.weight"),
            elements(theirs, "model.layers.0.mlp.shared_experts.down_proj.weight"));
  Tensors tensors = small_dots1_tensors();
  tensors.erase(name);
  EXPECT_THAT([&] { open(small_dots1(), tensors); }, ThrowsMessage<CheckpointError>(HasSubstr(name)));
}

TEST_F(SharedExperts, FusedExpertsAreTheSameModel) {
  const std::string block = "model.layers.0.mlp.";
  for (const auto& [config, single] :
       {std::pair(small_qwen2_moe(), small_qwen2_moe_tensors()), {small_glm4_moe(), small_glm4_moe_tensors()}}) {
    Tensors fused;
    for (const auto& [name, shape] : single)
      if (name.find(".experts.") == std::string::npos) fused[name] = shape;
    const int64_t count = fused.at(block + "gate.weight")[0];
    fused[block + "experts.gate_up_proj"] = {count, 10, 8};
    fused[block + "experts.down_proj"] = {count, 8, 5};
    const PretrainedModel model = open(config, fused);
    const ModelFiles theirs(files, "/model");
    EXPECT_EQ(elements(model.weights(), "blocks.0.mlp.experts.gate_up.weight"),
              elements(theirs, block + "experts.gate_up_proj"));
    const std::string shared = model.description().experts.shared_gate ? "shared_expert" : "shared_experts";
    EXPECT_EQ(elements(model.weights(), "blocks.0.mlp.shared.down.weight"),
              elements(theirs, block + shared + ".down_proj.weight"));
  }
}

// A bias that is rounded chooses other experts.
TEST_F(SharedExperts, BiasesAreFloat32InFilesOfEveryType) {
  import_model(files, open(small_dots1(), small_dots1_tensors()), "/checkpoints");
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const std::string folder = "/back-" + std::string(name_of(dtype));
    export_model(files, "/checkpoints", {.output = folder, .dtype = dtype, .shard_bytes = 400});
    const ModelFiles back(files, folder), theirs(files, "/model");
    for (const std::string& name : theirs.names()) {
      const bool is_bias = name.ends_with("e_score_correction_bias");
      std::vector<float> expected = elements(theirs, name);
      for (float& value : expected)
        if (!is_bias)
          value = static_cast<float>(dtype == DType::BFloat16 ? static_cast<float>(bfloat16(value))
                                                              : static_cast<float>(static_cast<float16>(value)));
      EXPECT_EQ(elements(back, name), expected) << name;
    }
  }
}

TEST_F(SharedExperts, ALayerThatPredictsAFurtherTokenIsLeftOutAndNamed) {
  Tensors tensors = small_glm4_moe_tensors();
  tensors["model.layers.1.eh_proj.weight"] = {8, 16};
  tensors["model.layers.1.shared_head.norm.weight"] = {8};
  const PretrainedModel glm = open(small_glm4_moe(), tensors);
  EXPECT_THAT(glm.notes(), ElementsAre("2 tensors were left out: they predict a further token (layer 1, "
                                       "num_nextn_predict_layers), which Trivet does not train; an exported model lacks them"));
  tensors.erase("model.layers.1.eh_proj.weight");
  EXPECT_THAT([&] { open(small_glm4_moe(), tensors); },
              ThrowsMessage<CheckpointError>(HasSubstr("model.layers.1.shared_head.norm.weight\" is no part of a model")));
}

TEST_F(SharedExperts, AModelIsWrittenAsTheArchitectureThatHasItsRouter) {
  const auto obstacle = [](const Architecture& architecture, const std::string& config, auto change) {
    model::Description d = describe(config).config.model;
    change(d);
    return architecture.obstacle(d);
  };
  using D = model::Description;
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D&) {}), "");
  EXPECT_EQ(obstacle(dots1(), small_glm4_moe(), [](D&) {}), "model.qkv_bias is true");
  EXPECT_EQ(obstacle(glm4_moe(), small_dots1(), [](D&) {}), "") << "it may have norms, and rotate whole heads";
  EXPECT_EQ(obstacle(qwen2_moe(), small_dots1(), [](D& d) { d.qk_norm = false; }), "model.experts.shared_gate is false");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.correction_bias = false; }),
            "model.experts.correction_bias is false");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.shared_gate = true; }), "model.experts.shared_gate is true");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.rule.score = kernels::ExpertScore::Softmax; }),
            "model.experts.score is \"softmax\"");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.shared_feed_forward_size = 7; }),
            "model.experts.shared_feed_forward_size 7 is no multiple of model.experts.feed_forward_size 5");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.shared_feed_forward_size = 0; }),
            "model.experts.shared_feed_forward_size is 0");
  EXPECT_EQ(obstacle(dots1(), small_dots1(),
                     [](D& d) {
                       d.layers = 3;
                       d.experts.dense_blocks = {1};
                     }),
            "model.experts.dense_blocks are not the first blocks in their order");
  EXPECT_EQ(obstacle(dots1(), small_dots1(), [](D& d) { d.experts.rule.groups = d.experts.rule.groups_per_token = 4; }),
            "each group has one expert, and transformers looks at two");
  EXPECT_EQ(obstacle(qwen3_moe(), small_dots1(), [](D& d) { d.experts.shared_feed_forward_size = 0; }),
            "model.experts.correction_bias is true");
  EXPECT_EQ(obstacle(qwen2_moe(), small_qwen2_moe(), [](D& d) { d.experts.shared_gate = false; }),
            "model.experts.shared_gate is false");
}

TEST_F(SharedExperts, TheRateOfBiasesIsNoPartOfAModel) {
  const model::Description there = describe(small_dots1()).config.model;
  model::Description here = there;
  here.experts.bias_update_rate = 0.001;
  EXPECT_EQ(model_difference(here, there), "");
  here.experts.correction_bias = false;
  EXPECT_THAT(model_difference(here, there), HasSubstr("model.experts.correction_bias is false, not true"));
}

}  // namespace
}  // namespace trivet::hugging_face
