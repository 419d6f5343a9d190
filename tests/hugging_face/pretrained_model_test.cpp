// Tests what is read of a model in Hugging Face's format, and what is refused.
#include "interchange/hugging_face/pretrained_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "interchange/hugging_face/model_files.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"
#include "tests/support/temporary_folder.h"

namespace trivet::hugging_face {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::vector<float> values(const checkpoint::TensorSource& source, const std::string& name) {
  const Shape shape = source.find(name)->shape;
  std::vector<float> data(shape.elements());
  const checkpoint::Piece piece =
      checkpoint::whole_box_piece(name, shape, 0, {data.data(), DType::Float32, {shape.elements()}});
  source.read({&piece, 1});
  return data;
}

class PretrainedModelTest : public testing::Test {
 protected:
  void write(const std::string& config, const std::string& weights) { write_model(files, "/model", config, weights); }
  PretrainedModel open() { return {files, "/model"}; }
  template <typename Expected>
  void expect_refused(const Expected& message) {
    EXPECT_THAT([&] { open(); }, ThrowsMessage<Error>(message));
  }
  // Opens the config with one more member.
  void expect_config_refused(const std::string& config, const std::string& member, const std::string& message) {
    EXPECT_THAT([&] { describe_model(config.substr(0, config.rfind('}')) + ", " + member + "}", "c.json"); },
                ThrowsMessage<ConfigError>(message));
  }
  static DescribedModel describe(const std::string& config, const std::string& member) {
    return describe_model(config.substr(0, config.rfind('}')) + ", " + member + "}", "c.json");
  }

  support::MemoryFileSystem files;
};

// What follows from a config.json has no place in that file.
TEST_F(PretrainedModelTest, AModelThatCannotBeIsRefusedWithoutAPlace) {
  std::string none = kSmallLlama;
  const std::string key = "\"num_hidden_layers\": ";
  const size_t at = none.find(key) + key.size();
  none.replace(at, none.find_first_of(",}", at) - at, "1000000000");
  EXPECT_THAT([&] { describe_model(none, "m/config.json"); },
              ThrowsMessage<ConfigError>(testing::StartsWith(
                  "m/config.json: describes a model that is not accepted: model.layers: 1000000000 is not accepted;")));
}

TEST_F(PretrainedModelTest, ReadsTheTensorsOfGpt2AsOurs) {
  write(kSmallGpt2, file_of(small_gpt2_tensors()));
  const PretrainedModel model = open();
  EXPECT_EQ(model.description().type, model::Type::Gpt);
  EXPECT_EQ(model.description().feed_forward_size, 16);
  EXPECT_TRUE(model.description().tied_embedding);
  EXPECT_THAT(model.notes(), IsEmpty());
  const ModelFiles theirs(files, "/model");
  const auto their_up = values(theirs, "transformer.h.0.mlp.c_fc.weight"),
             up = values(model.weights(), "blocks.0.mlp.up.weight");
  ASSERT_EQ(model.weights().find("blocks.0.mlp.up.weight")->shape, (Shape{16, 4}));
  for (size_t out = 0; out < 16; ++out)
    for (size_t in = 0; in < 4; ++in) EXPECT_EQ(up[out * 4 + in], their_up[in * 16 + out]);
  EXPECT_EQ(values(model.weights(), "blocks.0.norm2.bias"), values(theirs, "transformer.h.0.ln_2.bias"));
}

TEST_F(PretrainedModelTest, ReadsAFileOfTheModelWithoutItsHeadAndWithMasks) {
  auto tensors = small_gpt2_tensors("");
  tensors["h.0.attn.bias"] = {1, 1, 4, 4};
  write(kSmallGpt2, file_of(tensors));
  const PretrainedModel model = open();
  EXPECT_THAT(model.notes(), ElementsAre("1 tensor was ignored, as the config says the same: h.0.attn.bias"));
  EXPECT_EQ(values(model.weights(), "head.norm.gain"), values(ModelFiles(files, "/model"), "ln_f.weight"));
}

TEST_F(PretrainedModelTest, ReadsAWrappedModel) {
  write(kSmallGpt2, file_of(small_gpt2_tensors("module._orig_mod.transformer.")));
  EXPECT_EQ(open().weights().find("head.norm.gain")->shape, Shape{4});
}

TEST_F(PretrainedModelTest, JoinsTheProjectionsOfLlama) {
  write(kSmallLlama, file_of(small_llama_tensors()));
  const PretrainedModel model = open();
  const ModelFiles theirs(files, "/model");
  std::vector<float> joined;
  for (const char* part : {"q", "k", "v"})
    for (const float value : values(theirs, std::string("model.layers.0.self_attn.") + part + "_proj.weight"))
      joined.push_back(value);
  EXPECT_EQ(values(model.weights(), "blocks.0.attention.qkv.weight"), joined);
}

TEST_F(PretrainedModelTest, ReadsTheBiasesOfQwen2) {
  write(small_llama_as("qwen2"), file_of(small_qwen2_tensors()));
  const PretrainedModel model = open();
  EXPECT_TRUE(model.description().qkv_bias);
  const ModelFiles theirs(files, "/model");
  std::vector<float> joined;
  for (const char* part : {"q", "k", "v"})
    for (const float value : values(theirs, std::string("model.layers.0.self_attn.") + part + "_proj.bias"))
      joined.push_back(value);
  EXPECT_EQ(values(model.weights(), "blocks.0.attention.qkv.bias"), joined);
}

TEST_F(PretrainedModelTest, ReadsTheNormsOfQwen3) {
  write(small_llama_as("qwen3", ", \"head_dim\": 4"), file_of(small_qwen3_tensors()));
  const PretrainedModel model = open();
  EXPECT_TRUE(model.description().qk_norm);
  const ModelFiles theirs(files, "/model");
  EXPECT_EQ(values(model.weights(), "blocks.0.attention.query_norm.gain"),
            values(theirs, "model.layers.0.self_attn.q_norm.weight"));
  EXPECT_EQ(values(model.weights(), "blocks.0.attention.key_norm.gain"),
            values(theirs, "model.layers.0.self_attn.k_norm.weight"));
  EXPECT_EQ(describe(small_llama_as("qwen3"), R"("rope_theta": 1e6)").config.model.head_size, 128);
  expect_config_refused(small_llama_as("qwen3"), R"("attention_bias": true)",
                        "c.json: attention_bias: true is not accepted; use false");
}

TEST_F(PretrainedModelTest, ReadsGemma3) {
  const std::string gemma = small_llama_as("gemma3_text", R"(, "head_dim": 4, "query_pre_attn_scalar": 4)");
  write(gemma, file_of(small_gemma3_tensors()));
  const PretrainedModel model = open();
  const model::Description& d = model.description();
  EXPECT_TRUE(d.post_norm && d.qk_norm && d.tied_embedding);
  EXPECT_EQ(d.embedding_scale, std::sqrt(8.0));
  EXPECT_EQ(d.gate_activation, model::GateActivation::Gelu);
  EXPECT_EQ(d.attention_window, 4096);
  EXPECT_EQ(d.full_attention_every, 0);  // the only layer is not the 6th
  EXPECT_EQ(d.rotary_base, 1e6);
  EXPECT_EQ(d.window_rotary_base, 1e4);
  const ModelFiles theirs(files, "/model");
  std::vector<float> gain = values(theirs, "model.layers.0.pre_feedforward_layernorm.weight");
  for (float& value : gain) value += 1;
  EXPECT_EQ(values(model.weights(), "blocks.0.norm2.gain"), gain);
  EXPECT_EQ(describe(gemma, R"("layer_types": ["full_attention"])").config.model.full_attention_every, 1);
  std::string deep = gemma;
  deep.replace(deep.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 7");
  EXPECT_EQ(describe(deep, R"("rope_theta": 1e6)").config.model.full_attention_every, 6);
  EXPECT_EQ(describe(deep, R"("sliding_window_pattern": 3)").config.model.full_attention_every, 3);
  std::string second = deep;  // Gemma 2 in transformers has no such key
  second.replace(second.find("gemma3_text"), 11, "gemma2");
  EXPECT_EQ(describe(second, R"("sliding_window_pattern": 3, "rope_theta": 1e4)").config.model.full_attention_every, 2);
  EXPECT_EQ(describe(gemma, R"("rope_parameters": {"full_attention": {"rope_theta": 5e5},
                              "sliding_attention": {"rope_theta": 500}})")
                .config.model.window_rotary_base,
            500);
  EXPECT_EQ(describe(gemma, R"("rope_local_base_freq": 700)").config.model.window_rotary_base, 700);
  EXPECT_THAT([&] { describe(gemma, R"("rope_parameters": {"rope_theta": 1e5, "rope_type": "default"})"); },
              ThrowsMessage<ConfigError>(HasSubstr("use an object for full_attention and one for sliding_attention")))
      << "transformers does not read these keys";
  expect_config_refused(gemma, R"("layer_types": ["full_attention", "sliding_attention"])",
                        "c.json: layer_types: [\"full_attention\",\"sliding_attention\"] is not accepted; use 1 values, "
                        "\"sliding_attention\" except for \"full_attention\" in every n-th layer");
  EXPECT_EQ(describe(gemma, R"("attn_logit_softcapping": 50.0)").config.model.attention_soft_cap, 0)
      << "transformers does not apply this limit to Gemma 3";
  EXPECT_EQ(d.logits_soft_cap, 0);
  EXPECT_EQ(d.query_scale_size, 0);
  EXPECT_EQ(describe(gemma, R"("final_logit_softcapping": 30.0)").config.model.logits_soft_cap, 30);
  EXPECT_EQ(describe(small_llama_as("gemma3_text", R"(, "query_pre_attn_scalar": 4)"), R"("head_dim": 8)")
                .config.model.query_scale_size,
            4);
  expect_config_refused(gemma, R"("hidden_activation": "silu")",
                        "c.json: hidden_activation: \"silu\" is not accepted; use \"gelu_pytorch_tanh\"");
}

TEST_F(PretrainedModelTest, ReadsGemma2) {
  const std::string gemma = small_llama_as("gemma2", R"(, "head_dim": 4, "query_pre_attn_scalar": 4)");
  write(gemma, file_of(small_gemma2_tensors()));
  const PretrainedModel model = open();
  const model::Description& d = model.description();
  EXPECT_TRUE(d.post_norm && d.tied_embedding && !d.qk_norm);
  EXPECT_EQ(d.embedding_scale, std::sqrt(8.0));
  EXPECT_EQ(d.gate_activation, model::GateActivation::Gelu);
  EXPECT_EQ(d.attention_window, 4096);
  EXPECT_EQ(d.full_attention_every, 0);  // the only layer is not the second
  EXPECT_EQ(d.attention_soft_cap, 50);
  EXPECT_EQ(d.logits_soft_cap, 30);
  EXPECT_EQ(d.query_scale_size, 0);
  EXPECT_EQ(d.window_rotary_base, 0);
  std::vector<float> gain = values(ModelFiles(files, "/model"), "model.layers.0.post_attention_layernorm.weight");
  for (float& value : gain) value += 1;
  EXPECT_EQ(values(model.weights(), "blocks.0.post_norm1.gain"), gain);
  std::string deep = gemma;
  deep.replace(deep.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 5");
  const auto described = [&](const std::string& members) { return describe(deep, members).config.model; };
  EXPECT_EQ(described(R"("hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid")").full_attention_every, 2);
  EXPECT_EQ(described(R"("attn_logit_softcapping": 0.5, "final_logit_softcapping": null)").attention_soft_cap, 0.5);
  EXPECT_EQ(described(R"("attn_logit_softcapping": null, "final_logit_softcapping": 2)").attention_soft_cap, 0);
  EXPECT_EQ(described(R"("attn_logit_softcapping": null, "final_logit_softcapping": 2)").logits_soft_cap, 2);
  EXPECT_EQ(
      describe(small_llama_as("gemma2", R"(, "head_dim": 4)"), R"("query_pre_attn_scalar": 144)").config.model.query_scale_size,
      144);
  EXPECT_EQ(describe(small_llama_as("gemma2"), R"("head_dim": 4)").config.model.query_scale_size, 256);
  expect_config_refused(gemma, R"("attn_logit_softcapping": 0)",
                        "c.json: attn_logit_softcapping: 0 is not accepted; use a number greater than 0, or null for no limit");
  expect_config_refused(small_llama_as("gemma2"), R"("query_pre_attn_scalar": 0)",
                        "c.json: query_pre_attn_scalar: 0 is not accepted; use a number greater than 0");
}

TEST_F(PretrainedModelTest, ReadsHeadsOfTheirOwnSize) {
  EXPECT_EQ(describe(kSmallLlama, R"("head_dim": 6)").config.model.head_size, 6);
  EXPECT_EQ(describe(kSmallLlama, R"("head_dim": 4)").config.model.head_size, 4);
  EXPECT_EQ(describe(kSmallLlama, R"("head_dim": null)").config.model.head_size, 4);
  expect_config_refused(kSmallLlama, R"("head_dim": 0)", "c.json: head_dim: 0 is not accepted; use at least 1");
}

TEST_F(PretrainedModelTest, ReadsWindowsOfMistral) {
  EXPECT_EQ(describe(small_llama_as("mistral"), R"("sliding_window": 3)").config.model.attention_window, 3);
  EXPECT_EQ(describe(small_llama_as("mistral"), R"("sliding_window": null)").config.model.attention_window, 0);
  EXPECT_EQ(describe(small_llama_as("mistral"), R"("rope_theta": 1e6)").config.model.attention_window, 4096);
  EXPECT_EQ(describe(small_llama_as("mistral"), R"("layer_types": ["full_attention"])").config.model.attention_window, 0);
  EXPECT_EQ(describe(small_llama_as("mistral"), R"("layer_types": ["sliding_attention"])").config.model.attention_window, 4096);
  expect_config_refused(small_llama_as("mistral"), R"("layer_types": ["sliding_attention", "full_attention"])",
                        "c.json: layer_types: [\"sliding_attention\",\"full_attention\"] is not accepted; use "
                        "\"full_attention\" for all 1 layers, or \"sliding_attention\" for all of them");
  expect_config_refused(small_llama_as("mistral"), R"("is_causal": false)",
                        "c.json: is_causal: false is not accepted; the models that are read here see the tokens before each "
                        "alone; use true");
}

TEST_F(PretrainedModelTest, ReadsWindowsOfQwenIfAllLayersHaveThem) {
  const std::string qwen = small_llama_as("qwen2");
  const auto window = [&](const std::string& members) { return describe(qwen, members).config.model.attention_window; };
  EXPECT_EQ(window(R"("use_sliding_window": false, "sliding_window": 3, "max_window_layers": 0)"), 0);
  EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 0)"), 3);
  EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 1)"), 0);
  EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": null, "max_window_layers": 0)"), 0);
  EXPECT_EQ(window(R"("use_sliding_window": false, "layer_types": ["full_attention"])"), 0);
  EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 0,
                      "layer_types": ["sliding_attention"])"),
            3);
  expect_config_refused(qwen, R"("layer_types": ["sliding_attention"])",
                        "c.json: layer_types: [\"sliding_attention\"] is not accepted; use \"full_attention\" for all 1 "
                        "layers, as the model has no window");
  expect_config_refused(qwen, R"("layer_types": ["full_attention", "full_attention"])",
                        "c.json: layer_types: [\"full_attention\",\"full_attention\"] is not accepted; use "
                        "\"full_attention\" for all 1 layers, as the model has no window");
  expect_config_refused(qwen, R"("layer_types": [1])", "c.json: layer_types: [1] is not accepted; use a list of strings");
  std::string deep = qwen;
  deep.replace(deep.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 2");
  expect_config_refused(deep, R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 1)",
                        "c.json: max_window_layers: 1 is not accepted; use 0 or at least num_hidden_layers 2: all layers must "
                        "have the same window");
}

TEST_F(PretrainedModelTest, ReadsFusedProjectionsOfPhi3AsTheyAre) {
  write(small_llama_as("phi3", ", \"partial_rotary_factor\": 0.5"), file_of(small_phi3_tensors()));
  const PretrainedModel model = open();
  EXPECT_EQ(model.description().rotary_share, 0.5);
  EXPECT_EQ(model.description().attention_window, 0);
  const ModelFiles theirs(files, "/model");
  EXPECT_EQ(values(model.weights(), "blocks.0.attention.qkv.weight"),
            values(theirs, "model.layers.0.self_attn.qkv_proj.weight"));
  EXPECT_EQ(values(model.weights(), "blocks.0.mlp.gate_up.weight"), values(theirs, "model.layers.0.mlp.gate_up_proj.weight"));
  EXPECT_EQ(describe(small_llama_as("phi3"), R"("sliding_window": 7)").config.model.attention_window, 7);
  expect_config_refused(small_llama_as("phi3"), R"("resid_pdrop": 0.1)", "c.json: resid_pdrop: 0.1 is not accepted; use 0");
}

TEST_F(PretrainedModelTest, ReadsHalfPrecisionAsFloat) {
  write(kSmallLlama, file_of(small_llama_tensors()));
  const auto expected = values(open().weights(), "blocks.0.mlp.down.weight");
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    write(kSmallLlama, file_of(small_llama_tensors(), dtype));
    const auto read = values(open().weights(), "blocks.0.mlp.down.weight");
    for (size_t i = 0; i < read.size(); ++i)
      EXPECT_EQ(read[i], dtype == DType::BFloat16 ? static_cast<float>(bfloat16(expected[i]))
                                                  : static_cast<float>(static_cast<float16>(expected[i])));
  }
}

TEST_F(PretrainedModelTest, ReadsShards) {
  std::map<std::string, Shape> first, second;
  std::string map;
  for (const auto& [name, shape] : small_llama_tensors()) {
    const bool in_first = first.size() < 5;
    (in_first ? first : second)[name] = shape;
    map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + (in_first ? "a" : "b") + ".safetensors\"";
  }
  create_directories(files, "/model");
  write_text(files, "/model/config.json", kSmallLlama);
  write_text(files, "/model/a.safetensors", file_of(first));
  write_text(files, "/model/b.safetensors", file_of(second));
  write_text(files, "/model/model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
  EXPECT_EQ(values(open().weights(), "head.weight").size(), 40u);
  const std::string digest = open().digest();
  write_text(files, "/model/model.safetensors.index.json", R"({"weight_map": {)" + map + R"(, "x": "a.safetensors"}})");
  expect_refused("/model/model.safetensors.index.json: tensor \"x\" is not in \"a.safetensors\"");
  write_text(files, "/model/b.safetensors", "<html>");
  expect_refused(HasSubstr("b.safetensors: 6 bytes are too few for a safetensors file; it is truncated; get it again"));
  files.remove("/model/b.safetensors");
  expect_refused("/model/model.safetensors.index.json: names b.safetensors, which is not in the folder; get that file, too");
  write_text(files, "/model/b.safetensors", "Entry not found\n");
  expect_refused(HasSubstr("/model/b.safetensors: is a text, not a file of safetensors; it begins with \"Entry not found\""));
  second.erase("model.norm.weight");
  write_text(files, "/model/b.safetensors", file_of(second));
  write_text(files, "/model/model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
  expect_refused(HasSubstr("index.json: tensor \"model.norm.weight\" is not in"));
  second["model.norm.weight"] = {8};
  second["model.norm.weight.2"] = {8};
  write_text(files, "/model/b.safetensors", file_of(second));
  expect_refused("/model/b.safetensors: tensor \"model.norm.weight.2\" is not in model.safetensors.index.json");
}

TEST_F(PretrainedModelTest, AnIndexCannotNameAFileElsewhere) {
  for (const char* name : {"../secret.safetensors", "/etc/secret.safetensors", "folder/a.safetensors", "..", "", "config.json"})
    EXPECT_THAT([&] { parse_index(std::string(R"({"weight_map": {"x": ")") + name + "\"}}", "index"); },
                ThrowsMessage<CheckpointError>(HasSubstr("use the name of a .safetensors file in the same folder")))
        << name;
  EXPECT_THAT([] { parse_index(R"({"weight_map": {}})", "index"); },
              ThrowsMessage<CheckpointError>("index: \"weight_map\" is not an object that names a file for each tensor"));
}

TEST(PretrainedModelOnDisk, ALinkIsNotFollowed) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kSmallGpt2);
  folder.write("elsewhere", file_of(small_gpt2_tensors()));
  std::filesystem::create_symlink(folder.at("elsewhere"), folder.at("model.safetensors"));
  EXPECT_THAT(
      [&] { PretrainedModel(real_file_system(), folder.path()); },
      ThrowsMessage<CheckpointError>(HasSubstr("links are not followed: give a folder that holds the files themselves")));
}

TEST_F(PretrainedModelTest, RefusesTensorsThatDoNotFit) {
  auto tensors = small_llama_tensors();
  tensors["model.layers.0.self_attn.q_proj.bias"] = {8};
  write(kSmallLlama, file_of(tensors));
  expect_refused(HasSubstr("tensor \"model.layers.0.self_attn.q_proj.bias\" is no part of a model of the type \"llama\""));
  tensors = small_llama_tensors();
  tensors["model.embed_tokens.weight"] = {6, 8};
  write(kSmallLlama, file_of(tensors));
  expect_refused(
      "tensor \"model.embed_tokens.weight\" of /model/model.safetensors is stored as float32 [6, 8], but float32 [5, 8] is "
      "needed");
  tensors.erase("model.embed_tokens.weight");
  write(kSmallLlama, file_of(tensors));
  expect_refused(HasSubstr("tensor \"model.embed_tokens.weight\", needed for embedding.tokens.weight, is absent"));
}

// transformers 5 keeps a head apart that differs from the embedding, older versions ignore it.
TEST_F(PretrainedModelTest, ATiedHeadMayBeStoredTwiceOrAloneButNotDifferently) {
  const std::string tied = small_llama_as("llama", R"(, "tie_word_embeddings": true)");
  auto tensors = small_llama_tensors();
  const std::string different = file_of(tensors);
  tensors.erase("lm_head.weight");
  write(tied, file_of(tensors));
  const std::vector<float> embedding = values(open().weights(), "embedding.tokens.weight");
  EXPECT_EQ(open().weights().find("head.weight"), nullptr);
  write(tied, different);
  expect_refused(AllOf(HasSubstr("tensors \"model.embed_tokens.weight\" and \"lm_head.weight\" differ"),
                       HasSubstr("tie_word_embeddings: true")));
  tensors = small_llama_tensors();
  write(tied, file_of(tensors, DType::Float32, {{"lm_head.weight", "model.embed_tokens.weight"}}));
  EXPECT_THAT(open().notes(), IsEmpty());
  EXPECT_EQ(open().weights().find("head.weight"), nullptr);
  tensors.erase("model.embed_tokens.weight");
  write(tied, file_of(tensors));
  EXPECT_EQ(values(open().weights(), "embedding.tokens.weight"), values(ModelFiles(files, "/model"), "lm_head.weight"));
}

// The order of transformers: safetensors before torch, one file before an index.
TEST_F(PretrainedModelTest, TheFirstOfSeveralWeightsIsRead) {
  const auto index = [](const std::string& shard) {
    std::string map;
    for (const auto& [name, shape] : small_llama_tensors())
      map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + shard + "\"";
    return R"({"weight_map": {)" + map + "}}";
  };
  write(kSmallLlama, file_of(small_llama_tensors()));
  const std::vector<float> expected = values(open().weights(), "head.norm.gain");
  EXPECT_THAT(open().notes(), IsEmpty());
  // An older model in shards, whose values are others.
  write_text(files, "/model/old.safetensors",
             file_of(small_llama_tensors(), DType::Float32, {{"model.norm.weight", "model.layers.0.input_layernorm.weight"}}));
  write_text(files, "/model/model.safetensors.index.json", index("old.safetensors"));
  write_text(files, "/model/pytorch_model.bin", "not even read");
  EXPECT_EQ(values(open().weights(), "head.norm.gain"), expected);
  EXPECT_THAT(open().notes(), ElementsAre("model.safetensors was read, as transformers does it; model.safetensors.index.json, "
                                          "pytorch_model.bin, old.safetensors in the same folder were not"));
  files.remove("/model/model.safetensors");
  EXPECT_NE(values(open().weights(), "head.norm.gain"), expected);
  EXPECT_THAT(open().notes(),
              ElementsAre("model.safetensors.index.json was read, as transformers does it; pytorch_model.bin in the "
                          "same folder was not"));
  files.remove("/model/model.safetensors.index.json");
  expect_refused(HasSubstr("/model/pytorch_model.bin"));
}

TEST_F(PretrainedModelTest, SaysWhichFileOfAFolderIsMissingOrBroken) {
  write(kSmallLlama, file_of(small_llama_tensors()));
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n";
  write_text(files, "/model/model.safetensors", pointer);
  expect_refused("/model/model.safetensors: is a pointer of Git LFS, not the weights; get the file itself: git lfs pull");
  files.remove("/model/model.safetensors");
  write_text(files, "/model/pytorch_model.bin", pointer);
  expect_refused(HasSubstr("/model/pytorch_model.bin: is a pointer of Git LFS"));
  files.remove("/model/pytorch_model.bin");
  using namespace std::string_literals;
  const std::string rest(200, '\xff');
  for (const auto& [content, message] : std::map<std::string, std::string>{
           {"\x1F\x8B\x08\0"s + rest, "is packed with gzip, not a file of safetensors; unpack it"},
           {"\x28\xB5\x2F\xFD" + rest, "is packed with zstd, not a file of safetensors; unpack it"},
           {"PK\x03\x04\x14\0\0\0\x08\0"s + rest, "is a zip archive, not a file of safetensors; unpack it, and put"},
           {"PK\x03\x04\0\0\x08\x08"s + std::string(18, '\0') + "\x10\0\0\0"s + "archive/data.pkl" + rest,
            "is a file of torch.save, not a file of safetensors; give it the name of such a file, such as pytorch_model.bin"},
           {"GGUF\x03\0\0\0"s + rest, "is a GGUF model, not a file of safetensors; write the model with save_pretrained"},
           {"\x89PNG\r\n\x1a\n" + rest, "is a PNG image, not a file of safetensors; get the file again"},
           {"<!DOCTYPE html>\r\n<html>",
            "is a text, not a file of safetensors; it begins with \"<!DOCTYPE html>\"; get the file again"},
           {"{\"error\": \"not found\"}",
            "is a text, not a file of safetensors; it begins with \"{\"error\": \"not found\"}\"; get the file again"},
           {"\x00\x10\0\0\0\0\0\0{\"a\": {\"dtype\": \"F32\""s,
            "the header says it has 4096 bytes, the file has 29; it is truncated; get it again"},
           {std::string(200, '\x90'), "the header says it has 10416984888683040912 bytes"}}) {
    write_text(files, "/model/model.safetensors", content);
    expect_refused(HasSubstr("/model/model.safetensors: " + message));
  }
  files.remove("/model/model.safetensors");
  expect_refused(HasSubstr("neither model.safetensors nor pytorch_model.bin, nor an index of shards; put the weights there"));
  write_text(files, "/model/weights.safetensors", "");
  expect_refused(HasSubstr("it has weights.safetensors; if these are its weights, give them one of these names"));
  for (const char* shard : {"/model/model-00001-of-00002.safetensors", "/model/model-00002-of-00002.safetensors"})
    write_text(files, shard, "");
  expect_refused(
      HasSubstr("model-00002-of-00002.safetensors, weights.safetensors; restore the index that belongs to the shards"));
  for (const char* broken : {"", "{bad", "\xff"}) {
    write_text(files, "/model/config.json", broken);
    expect_refused(HasSubstr("/model/config.json: not JSON: "));
  }
}

TEST_F(PretrainedModelTest, RefusesMoreLayersThanTensors) {
  std::string deep = kSmallGpt2;
  deep.replace(deep.find("\"n_layer\": 1"), 12, "\"n_layer\": 60000");
  write(deep, file_of(small_gpt2_tensors()));
  expect_refused("/model/config.json: describes 60000 layers, but the files hold only 16 tensors");
}

TEST_F(PretrainedModelTest, NamesWhatIsMissing) {
  expect_refused(HasSubstr("is /model a model in Hugging Face's format?"));
  create_directories(files, "/model");
  write_text(files, "/model/config.json", kSmallGpt2);
  expect_refused(HasSubstr("model.safetensors"));
}

TEST_F(PretrainedModelTest, RefusesKeysByName) {
  expect_config_refused(kSmallGpt2, R"("activation_function": "gelu")",
                        "c.json: activation_function: \"gelu\" is not accepted; use \"gelu_new\", the tanh form of GELU");
  expect_config_refused(kSmallGpt2, R"("attn_pdrop": 0.2)",
                        "c.json: attn_pdrop: 0.2 is not accepted; use 0.1 as in resid_pdrop");
  expect_config_refused(kSmallGpt2, R"("scale_attn_weights": false)",
                        "c.json: scale_attn_weights: false is not accepted; use true");
  expect_config_refused(kSmallGpt2, R"("transformers_version": "6.1.0", "new_feature": 3)",
                        "c.json: new_feature: 3 is not accepted; this key of the model is not known here, and the file is of a "
                        "transformers newer than 5.24; if it changes no results, remove it");
  expect_config_refused(
      kSmallLlama, R"("quantization_config": {"bits": 4})",
      "c.json: quantization_config: {\"bits\":4} is not accepted; only weights in float32, bfloat16 or float16 "
      "are read, all of them");
  expect_config_refused(kSmallLlama, R"("mlp_bias": true)", "c.json: mlp_bias: true is not accepted; use false");
  expect_config_refused(kSmallLlama, R"("hidden_act": "gelu")", "c.json: hidden_act: \"gelu\" is not accepted; use \"silu\"");
  expect_config_refused(kSmallLlama, R"("rms_norm_eps": "small")",
                        "c.json: rms_norm_eps: \"small\" is not accepted; use a number");
  for (const char* key : {"hidden_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "intermediate_size",
                          "max_position_embeddings", "vocab_size", "head_dim"})
    for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text"})
      EXPECT_THAT([&] { describe_model(fmt::format(R"({{"model_type": "{}", "{}": 0}})", type, key), "c.json"); },
                  ThrowsMessage<ConfigError>(fmt::format("c.json: {}: 0 is not accepted; use at least 1", key)))
          << type;
  for (const char* key : {"n_embd", "n_positions", "n_layer", "n_head", "n_inner", "vocab_size"})
    EXPECT_THAT([&] { describe_model(fmt::format(R"({{"model_type": "gpt2", "{}": 0}})", key), "c.json"); },
                ThrowsMessage<ConfigError>(fmt::format("c.json: {}: 0 is not accepted; use at least 1", key)));
  for (const char* type : {"mistral", "phi3"})
    expect_config_refused(small_llama_as(type), R"("sliding_window": 0)",
                          "c.json: sliding_window: 0 is not accepted; use at least 1, or null for no window");
  EXPECT_THAT(
      [] { describe_model(R"({"model_type": "bert"})", "c.json"); },
      ThrowsMessage<ConfigError>(HasSubstr("c.json: model_type: \"bert\" is not accepted; use one of \"gpt2\", \"llama\"")));
  EXPECT_THAT([] { describe_model(R"({})", "c.json"); },
              ThrowsMessage<ConfigError>("c.json: model_type: is not given; use a string"));
  EXPECT_THAT([] { describe_model(R"({"model_type": "gpt2", "n_layer": -1})", "c.json"); },
              ThrowsMessage<ConfigError>("c.json: n_layer: -1 is not accepted; use an integer from 0 to 2147483647"));
}

TEST_F(PretrainedModelTest, KeysThatTransformersDoesNotReadAreOneNote) {
  EXPECT_THAT(
      describe(kSmallLlama, R"("new_feature": 3, "other": null, "rope_scaling": {"type": "linear", "factor": 2, "x": 1})")
          .notes,
      ElementsAre("2 keys change no result of transformers' LlamaForCausalLM and were ignored: rope_scaling.x, new_feature"));
  EXPECT_THAT(describe(kSmallLlama, R"("use_cache": true, "eos_token_id": [1, 2])").notes, IsEmpty());
}

TEST_F(PretrainedModelTest, ReadsRotaryBasesOfBothVersionsOfTransformers) {
  EXPECT_EQ(describe(kSmallLlama, R"("rope_theta": 5e5)").config.model.rotary_base, 5e5);
  EXPECT_EQ(describe(kSmallLlama, R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e5})").config.model.rotary_base,
            5e5);
  EXPECT_EQ(describe(kSmallLlama, R"("rope_scaling": null)").config.model.rotary_base, 1e4);
}

// transformers 4 takes the one at the top, transformers 5 the other.
TEST_F(PretrainedModelTest, KeysAtTheTopAndAmongRotaryKeysAgree) {
  const std::string same = ": give both the same value, or remove one";
  EXPECT_EQ(describe(kSmallLlama, R"("rope_theta": 500000, "rope_parameters": {"rope_theta": 5e5})").config.model.rotary_base,
            5e5);
  const std::string phi = small_llama_as("phi3"), gemma = small_llama_as("gemma3_text", R"(, "head_dim": 4)");
  for (const auto& [config, member, message] : std::vector<std::array<std::string, 3>>{
           {phi, R"("partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.75})",
            "partial_rotary_factor: 0.5 is not accepted; rope_parameters.partial_rotary_factor is 0.75"},
           {phi, R"("original_max_position_embeddings": 4, "rope_scaling": {"original_max_position_embeddings": 8})",
            "original_max_position_embeddings: 4 is not accepted; rope_scaling.original_max_position_embeddings is 8"},
           {kSmallLlama, R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 5e5})",
            "rope_theta: 10000 is not accepted; rope_parameters.rope_theta is 500000.0"},
           {kSmallLlama, R"("rope_parameters": {"factor": 2}, "rope_scaling": {"type": "linear", "factor": 4})",
            "rope_parameters.factor: 2 is not accepted; rope_scaling.factor is 4"},
           {gemma, R"("rope_theta": 1e6, "rope_parameters": {"full_attention": {"rope_theta": 2e6}})",
            "rope_theta: 1000000.0 is not accepted; rope_parameters.full_attention.rope_theta is 2000000.0"},
           {gemma, R"("rope_local_base_freq": 1e4, "rope_parameters": {"sliding_attention": {"rope_theta": 2e4}})",
            "rope_local_base_freq: 10000.0 is not accepted; rope_parameters.sliding_attention.rope_theta is 20000.0"}})
    expect_config_refused(config, member, "c.json: " + message + same);
}

TEST_F(PretrainedModelTest, ReadsRotaryScaling) {
  using model::RotaryScalingType;
  const auto scaling = [&](const std::string& member) { return describe(kSmallLlama, member).config.model.rotary_scaling; };
  EXPECT_EQ(scaling(R"("rope_theta": 5e5)"), model::RotaryScaling{});
  EXPECT_EQ(scaling(R"("rope_scaling": {"type": "linear", "factor": 2})"),
            (model::RotaryScaling{.type = RotaryScalingType::Linear, .factor = 2}));
  EXPECT_EQ(scaling(R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.5,
                       "high_freq_factor": 3.5, "original_max_position_embeddings": 4096})"),
            (model::RotaryScaling{RotaryScalingType::Llama3, 32, 1.5, 3.5, 4096}));
  expect_config_refused(kSmallLlama, R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})",
                        "c.json: rope_scaling.rope_type: \"dynamic\" is not accepted; use \"default\", \"linear\", \"llama3\", "
                        "\"yarn\" or \"longrope\"");
  expect_config_refused(kSmallLlama, R"("rope_scaling": {"rope_type": "linear"})",
                        "c.json: rope_scaling.factor: is not given; use a number");
  expect_config_refused(kSmallLlama, R"("rope_scaling": {"rope_type": "linear", "factor": 0.5})",
                        "c.json: rope_scaling.factor: 0.5 is not accepted; use at least 1");
}

TEST_F(PretrainedModelTest, ReadsYarn) {
  using model::RotaryScalingType;
  const auto scaling = [&](const std::string& member) { return describe(kSmallLlama, member).config.model.rotary_scaling; };
  const model::RotaryScaling usual{.type = RotaryScalingType::Yarn,
                                   .factor = 4,
                                   .low_frequency_factor = 1,
                                   .high_frequency_factor = 32,
                                   .original_length = 4};
  const std::string yarn = R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4)";
  EXPECT_EQ(scaling(yarn + "}"), usual);
  // max_position_embeddings is 16.
  EXPECT_EQ(scaling(R"("original_max_position_embeddings": 4, "rope_scaling": {"type": "yarn"})"), usual);
  EXPECT_EQ(scaling(yarn + R"(, "beta_fast": 0, "beta_slow": null, "mscale": 0.7, "attention_factor": null})"), usual);
  model::RotaryScaling other = usual;
  other.low_frequency_factor = 2, other.high_frequency_factor = 16, other.whole_pairs = false, other.attention_factor = 1.25;
  EXPECT_EQ(scaling(yarn + R"(, "beta_fast": 16, "beta_slow": 2, "truncate": false, "attention_factor": 1.25})"), other);
  const double ratio = (1 + 0.1 * 0.8 * std::log(4.0)) / (1 + 0.1 * 0.5 * std::log(4.0));
  EXPECT_NEAR(scaling(yarn + R"(, "mscale": 0.8, "mscale_all_dim": 0.5})").attention_factor, ratio, 1e-15);
  EXPECT_EQ(scaling(yarn + R"(, "mscale": 0.8, "mscale_all_dim": 0.5, "attention_factor": 2.0})").attention_factor, 2);
  EXPECT_EQ(scaling(yarn + R"(, "mscale": 1, "mscale_all_dim": 1})").attention_factor, 1);
  expect_config_refused(kSmallLlama, yarn + R"(, "attention_factor": -1})",
                        "c.json: rope_scaling.attention_factor: -1 is not accepted; use more than 0");
  expect_config_refused(kSmallLlama, R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": 1})",
                        "c.json: rope_scaling.original_max_position_embeddings: 1 is not accepted; use at least 2");
}

TEST_F(PretrainedModelTest, ReadsLongRope) {
  using model::RotaryScalingType;
  const std::string phi = small_llama_as("phi3"), lists = R"("short_factor": [1, 1.5], "long_factor": [2.0, 30])";
  const auto scaling = [&](const std::string& member) { return describe(phi, member).config.model.rotary_scaling; };
  const model::RotaryScaling usual{.type = RotaryScalingType::LongRope,
                                   .factor = 4,
                                   .original_length = 4,
                                   .short_factors = {1, 1.5},
                                   .long_factors = {2, 30}};
  const std::string original = R"("original_max_position_embeddings": 4, )";
  EXPECT_EQ(scaling(original + R"("rope_scaling": {"type": "longrope", )" + lists + "}"), usual);
  for (const char* former : {"su", "yarn"})
    EXPECT_EQ(scaling(original + R"("rope_scaling": {"type": ")" + former + "\", " + lists + "}"), usual);
  for (const char* short_length : {"0", "1"})
    expect_config_refused(
        phi,
        fmt::format(R"("original_max_position_embeddings": {}, "rope_scaling": {{"type": "longrope", )", short_length) + lists +
            "}",
        fmt::format("c.json: original_max_position_embeddings: {} is not accepted; use at least 2", short_length));
  expect_config_refused(
      phi, R"("rope_scaling": {"type": "longrope", "original_max_position_embeddings": 8, )" + lists + "}",
      "c.json: rope_scaling.original_max_position_embeddings: 8 is not accepted; the class of this model takes "
      "4096, unless original_max_position_embeddings is at the top of the file: put it there");
  EXPECT_EQ(scaling(R"("rope_scaling": {"type": "longrope", )" + lists + "}").original_length, 4096);
  EXPECT_EQ(scaling(R"("rope_scaling": {"type": "longrope", )" + lists + "}").factor, 1);
  model::RotaryScaling stated = usual;
  stated.factor = 2, stated.attention_factor = 1.25;
  EXPECT_EQ(
      scaling(original + R"("rope_scaling": {"type": "longrope", "factor": 2.0, "attention_factor": 1.25, )" + lists + "}"),
      stated);
  EXPECT_EQ(describe(kSmallLlama,
                     R"("rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 4, )" + lists + "}")
                .config.model.rotary_scaling,
            usual);
  expect_config_refused(phi, R"("rope_scaling": {"type": "longrope", "short_factor": [1, 0], "long_factor": [1, 1]})",
                        "c.json: rope_scaling.short_factor: [1,0] is not accepted; use a list of numbers greater than 0");
  expect_config_refused(phi, R"("rope_scaling": {"type": "longrope", "short_factor": [1, 1]})",
                        "c.json: rope_scaling.long_factor: is not given; use a list of numbers greater than 0");
  expect_config_refused(phi, R"("rope_scaling": {"type": "linear", "factor": 2})",
                        "c.json: rope_scaling.type: \"linear\" is not accepted; use \"default\" or \"longrope\"");
}

}  // namespace
}  // namespace trivet::hugging_face
