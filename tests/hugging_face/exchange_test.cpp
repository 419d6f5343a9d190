// Tests that a model which is imported and exported again is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/error.h"
#include "core/folder_claim.h"
#include "engine/checkpoint/steps.h"
#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/same_model.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

class Exchange : public testing::Test {
 protected:
  Exchange() {
    write_model(files, "/gpt2", kSmallGpt2, file_of(small_gpt2_tensors()));
    write_model(files, "/llama", kSmallLlama, file_of(small_llama_tensors()));
    write_model(files, "/qwen2", small_llama_as("qwen2"), file_of(small_qwen2_tensors()));
    write_model(files, "/qwen3", small_llama_as("qwen3", ", \"head_dim\": 4"), file_of(small_qwen3_tensors()));
    write_model(files, "/gemma3_text",
                small_llama_as("gemma3_text", R"(, "head_dim": 4, "query_pre_attn_scalar": 4, "sliding_window": 3)"),
                file_of(small_gemma3_tensors()));
    write_model(files, "/gemma2",
                small_llama_as("gemma2", R"(, "head_dim": 4, "query_pre_attn_scalar": 144, "final_logit_softcapping": null)"),
                file_of(small_gemma2_tensors()));
    write_model(files, "/mistral", small_llama_as("mistral", ", \"sliding_window\": 3"), file_of(small_llama_tensors()));
    write_model(files, "/mixtral", small_mixtral(), file_of(small_mixtral_tensors()));
    write_model(files, "/qwen3_moe", small_qwen3_moe(), file_of(small_qwen3_moe_tensors()));
    write_model(files, "/qwen2_moe", small_qwen2_moe(), file_of(small_qwen2_moe_tensors()));
    write_model(files, "/dots1", small_dots1(), file_of(small_dots1_tensors()));
    write_model(files, "/glm4_moe", small_glm4_moe(), file_of(small_glm4_moe_tensors()));
    write_model(files, "/phi3", small_llama_as("phi3", ", \"partial_rotary_factor\": 0.5"), file_of(small_phi3_tensors()));
  }
  Exported exported(const std::string& model, ExportOptions options) {
    import_model(files, PretrainedModel(files, "/" + model), "/checkpoints-of-" + model);
    return export_model(files, "/checkpoints-of-" + model, options);
  }
  std::string text(const std::string& path) { return read_text(files, path, 1 << 20); }

  support::MemoryFileSystem files;
};

TEST_F(Exchange, ImportedAndExportedWeightsHaveEqualBits) {
  for (const std::string name : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "mixtral",
                                 "qwen3_moe", "qwen2_moe", "dots1", "glm4_moe"}) {
    const Exported result = exported(name, {.output = "/back-" + name});
    EXPECT_EQ(result.model_type, name);
    EXPECT_THAT(result.files, ElementsAre("model.safetensors", "config.json"));
    EXPECT_EQ(text("/back-" + name + "/model.safetensors"), text("/" + name + "/model.safetensors"));
    const PretrainedModel before(files, "/" + name), after(files, "/back-" + name);
    EXPECT_EQ(model_difference(before.description(), after.description()), "");
  }
}

// Of each, config.json says what the read one says, too: all members that both have are equal.
TEST_F(Exchange, LaterTypesKeepTheirWeightsAndTheirKeys) {
  for (const auto& [name, keys] : kSmallLater) {
    const std::string original = small_later(name);
    write_model(files, "/" + name, original, file_of(small_later_tensors(name)));
    const Exported result = exported(name, {.output = "/back-" + name});
    EXPECT_EQ(result.model_type, name) << "no architecture before it can store the model";
    EXPECT_EQ(text("/back-" + name + "/model.safetensors"), text("/" + name + "/model.safetensors"));
    const PretrainedModel before(files, "/" + name), after(files, "/back-" + name);
    EXPECT_EQ(model_difference(before.description(), after.description()), "") << name;
    const auto theirs = nlohmann::json::parse(original), ours = nlohmann::json::parse(text("/back-" + name + "/config.json"));
    for (const auto& [key, value] : theirs.items())
      if (value.is_primitive() && ours.contains(key)) {
        EXPECT_EQ(ours.at(key), value) << name << ": " << key;
      }
    for (const Architecture& other : architectures())
      if (other.model_type != "glm4_moe_lite") {  // it is DeepSeek-V3 under another name
        EXPECT_EQ(other.obstacle(before.description()).empty(), other.model_type == name) << name << " as " << other.model_type;
      }
  }
}

TEST_F(Exchange, DeepSeekV3IsWrittenAsGlmIfItIsAskedFor) {
  write_model(files, "/v3", small_later("deepseek_v3"), file_of(small_later_tensors("deepseek_v3")));
  EXPECT_EQ(exported("v3", {.output = "/glm", .model_type = "glm4_moe_lite"}).model_type, "glm4_moe_lite");
  EXPECT_EQ(text("/glm/model.safetensors"), text("/v3/model.safetensors"));
  EXPECT_EQ(model_difference(PretrainedModel(files, "/v3").description(), PretrainedModel(files, "/glm").description()), "");
  EXPECT_EQ(nlohmann::json::parse(text("/glm/config.json")).at("mlp_layer_types"), nlohmann::json::parse(R"(["sparse"])"));
}

TEST_F(Exchange, AWidthOfValuesThatIsLeftOutIsThatOfHeads) {
  model::Description there;
  there.type = model::Type::Llama;
  there.head_size = 6;
  there.latent_attention = {.key_value_rank = 4, .rotary_size = 2, .value_size = 6};
  model::Description here = there;
  here.latent_attention.value_size = 0;
  EXPECT_EQ(model_difference(here, there), "");
}

TEST_F(Exchange, WhatAModelDoesNotUseIsNoDifference) {
  const model::Description there = PretrainedModel(files, "/llama").description();
  model::Description here = there;
  here.bias = !here.bias;
  EXPECT_EQ(model_difference(here, there), "") << "a llama has no biases";
  here.heads = 1, here.key_value_heads = 0;
  EXPECT_THAT(model_difference(here, there), testing::StartsWith("model.heads is 1, not "));
}

TEST_F(Exchange, AModelIsWrittenAsTheFirstArchitectureThatHasItsFeaturesOrAsTheChosenOne) {
  write_model(files, "/mistral-without", small_llama_as("mistral", ", \"sliding_window\": null"),
              file_of(small_llama_tensors()));
  EXPECT_EQ(exported("mistral-without", {.output = "/first"}).model_type, "llama");
  EXPECT_EQ(export_model(files, "/checkpoints-of-mistral-without", {.output = "/chosen", .model_type = "mistral"}).model_type,
            "mistral");
  EXPECT_TRUE(nlohmann::json::parse(text("/chosen/config.json")).at("sliding_window").is_null());
  EXPECT_EQ(export_model(files, "/checkpoints-of-mistral-without", {.output = "/fused", .model_type = "phi3"}).model_type,
            "phi3");
  const PretrainedModel before(files, "/mistral-without"), after(files, "/fused");
  EXPECT_EQ(model_difference(before.description(), after.description()), "");
  import_model(files, PretrainedModel(files, "/mistral"), "/windows");
  EXPECT_THAT([&] { export_model(files, "/windows", {.output = "/x", .model_type = "llama"}); },
              ThrowsMessage<ConfigError>(HasSubstr("\"llama\": model.attention_window is 3")));
  import_model(files, PretrainedModel(files, "/qwen2"), "/biases");
  EXPECT_THAT([&] { export_model(files, "/biases", {.output = "/x", .model_type = "mistral"}); },
              ThrowsMessage<ConfigError>(HasSubstr("\"mistral\": model.qkv_bias is true")));
}

TEST_F(Exchange, AModelWithExpertsIsWrittenAsTheArchitectureThatHasItsRouter) {
  const auto reason = [&](const std::string& model, const std::string& type) -> std::string {
    try {
      export_model(files, "/checkpoints-of-" + model, {.output = "/x", .model_type = type});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::string name : {"mixtral", "qwen3_moe", "qwen3", "gpt2"}) exported(name, {.output = "/back-" + name});
  EXPECT_THAT(reason("mixtral", "mistral"), HasSubstr("\"mistral\": model.experts.count is 2"));
  EXPECT_THAT(reason("mixtral", "qwen3_moe"), HasSubstr("\"qwen3_moe\": model.qk_norm is false"));
  EXPECT_THAT(reason("qwen3_moe", "mixtral"), HasSubstr("\"mixtral\": model.qk_norm is true"));
  EXPECT_THAT(reason("qwen3", "qwen3_moe"), HasSubstr("\"qwen3_moe\": model.experts.count is 0"));
  EXPECT_THAT(reason("gpt2", "mixtral"), HasSubstr("\"mixtral\": model.type is \"gpt\""));
  const model::Description description = PretrainedModel(files, "/mixtral").description();
  const auto obstacle = [&](auto change) {
    model::Description other = description;
    change(other.experts);
    return mixtral().obstacle(other);
  };
  EXPECT_EQ(obstacle([](model::Experts&) {}), "");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.rule.normalize = false; }), "model.experts.normalize is false");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.rule.scale = 2.5; }), "model.experts.scale is 2.5");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.rule.groups = 2; }), "model.experts.groups is 2");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.rule.score = kernels::ExpertScore::Sigmoid; }),
            "model.experts.score is \"sigmoid\"");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.dense_blocks = {0}; }), "model.experts.dense_blocks lists 0");
  EXPECT_EQ(obstacle([](model::Experts& experts) { experts.shared_feed_forward_size = 6; }),
            "model.experts.shared_feed_forward_size is 6");
}

TEST_F(Exchange, LossesOfRoutersAreNoPartOfAModel) {
  const model::Description there = PretrainedModel(files, "/mixtral").description();
  model::Description here = there;
  here.experts.balance_loss = 0.01;
  here.experts.z_loss = 0.001;
  here.feed_forward_size = 7;
  EXPECT_EQ(model_difference(here, there), "") << "no block has an MLP of this width";
  here.experts.per_token = 2;
  EXPECT_EQ(model_difference(here, there), "model.experts.per_token is 2, not 1");
  here = there;
  here.experts = {};
  EXPECT_THAT(model_difference(here, there), HasSubstr("model.experts.count is 0, not 2"));
}

TEST_F(Exchange, RotaryScalingIsWrittenAsItWasRead) {
  const std::string scaling =
      R"(, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";
  write_model(files, "/scaled", small_llama_as("llama", scaling), file_of(small_llama_tensors()));
  EXPECT_EQ(exported("scaled", {.output = "/back"}).model_type, "llama");
  const auto config = nlohmann::json::parse(text("/back/config.json"));
  EXPECT_EQ(config.at("rope_scaling"), nlohmann::json::parse(small_llama_as("llama", scaling)).at("rope_scaling"));
  EXPECT_EQ(config.at("rope_theta"), 5e5);
}

TEST_F(Exchange, YarnAndLongRopeAreWrittenAsTheyWereRead) {
  const std::string yarn =
      R"({"rope_type": "yarn", "factor": 4.0, "beta_slow": 1.0, "beta_fast": 32.0, "original_max_position_embeddings": 4,
          "truncate": false, "attention_factor": 1.25})";
  write_model(files, "/yarn", small_llama_as("llama", R"(, "rope_scaling": )" + yarn), file_of(small_llama_tensors()));
  EXPECT_EQ(exported("yarn", {.output = "/back-yarn"}).model_type, "llama");
  EXPECT_EQ(nlohmann::json::parse(text("/back-yarn/config.json")).at("rope_scaling"), nlohmann::json::parse(yarn));
  const std::string longrope = R"({"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 30.0]})";
  write_model(files, "/longrope",
              small_llama_as("phi3", R"(, "original_max_position_embeddings": 4, "rope_scaling": )" + longrope),
              file_of(small_phi3_tensors()));
  import_model(files, PretrainedModel(files, "/longrope"), "/long");
  export_model(files, "/long", {.output = "/back-longrope", .model_type = "phi3"});
  const auto config = nlohmann::json::parse(text("/back-longrope/config.json"));
  EXPECT_EQ(config.at("rope_scaling"), nlohmann::json::parse(longrope));
  EXPECT_EQ(config.at("original_max_position_embeddings"), 4);
  // With other keys, too, a model has the same description.
  for (const std::string member : {R"("factor": 2.0)", R"("attention_factor": 1.5)"}) {
    std::string other = longrope;
    write_model(
        files, "/longrope",
        small_llama_as("phi3", R"(, "original_max_position_embeddings": 4, "rope_scaling": )" + other.insert(1, member + ", ")),
        file_of(small_phi3_tensors()));
    const std::string name = "/" + member.substr(1, 6);
    import_model(files, PretrainedModel(files, "/longrope"), name);
    for (const std::string type : {"phi3", "llama"}) {
      export_model(files, name, {.output = name + type, .model_type = type});
      EXPECT_EQ(model_difference(PretrainedModel(files, "/longrope").description(),
                                 PretrainedModel(files, name + type).description()),
                "");
    }
  }
  import_model(files, PretrainedModel(files, "/yarn"), "/of-yarn");
  EXPECT_THAT([&] { export_model(files, "/of-yarn", {.output = "/x", .model_type = "phi3"}); },
              ThrowsMessage<ConfigError>(HasSubstr("\"phi3\": model.rotary_scaling.type is \"yarn\"")));
}

TEST_F(Exchange, AModelWithLimitsIsOnlyStoredAsAGemma) {
  import_model(files, PretrainedModel(files, "/gemma2"), "/limits");
  EXPECT_THAT([&] { export_model(files, "/limits", {.output = "/x", .model_type = "gemma3_text"}); },
              ThrowsMessage<ConfigError>(HasSubstr("\"gemma3_text\": model.window_rotary_base is 0")));
  model::Description llama = PretrainedModel(files, "/llama").description();
  EXPECT_EQ(architecture_of("llama", "c").obstacle(llama), "");
  llama.attention_soft_cap = 50;
  EXPECT_EQ(architecture_of("llama", "c").obstacle(llama), "model.attention_soft_cap is 50");
  llama.logits_soft_cap = 30, llama.attention_soft_cap = 0;
  EXPECT_EQ(architecture_of("llama", "c").obstacle(llama), "model.logits_soft_cap is 30");
  llama.query_scale_size = 2;
  EXPECT_EQ(architecture_of("llama", "c").obstacle(llama), "model.query_scale_size is 2");
}

TEST_F(Exchange, TheCheckpointOfAnImportHoldsConfigAndWeights) {
  const Imported imported = import_model(files, PretrainedModel(files, "/llama"), "/out");
  EXPECT_EQ(imported.step, "/out/step-00000000");
  const auto step = checkpoint::open_newest(files, "/out");
  EXPECT_EQ(step.run_id(), kImportedRunId);
  EXPECT_NO_THROW(step.verify());
  EXPECT_EQ(nlohmann::json::parse(step.config()).at("model").at("type"), "llama");
  EXPECT_THAT([&] { import_model(files, PretrainedModel(files, "/llama"), "/out"); },
              ThrowsMessage<ConfigError>("--output /out: holds checkpoints already; choose another directory"));
}

TEST_F(Exchange, LargeModelsAreDividedAmongFiles) {
  const Exported result = exported("llama", {.output = "/back", .shard_bytes = 600});
  EXPECT_THAT(result.files, SizeIs(testing::Gt(4u)));
  const ModelFiles before(files, "/llama"), after(files, "/back");
  EXPECT_EQ(before.names(), after.names());
  const auto index = nlohmann::json::parse(text("/back/model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), result.bytes);
  EXPECT_EQ(result.bytes, 4 * (5 * 8 * 2 + 8 * 3 + 8 * 8 * 2 + 4 * 8 * 2 + 6 * 8 * 3));
}

TEST_F(Exchange, WritesHalfPrecision) {
  exported("llama", {.output = "/back", .dtype = DType::BFloat16});
  EXPECT_EQ(text("/back/model.safetensors"), file_of(small_llama_tensors(), DType::BFloat16));
  EXPECT_EQ(nlohmann::json::parse(text("/back/config.json")).at("torch_dtype"), "bfloat16");
}

TEST_F(Exchange, NamesTheArchitecturesThatThereAre) {
  EXPECT_THAT(
      [&] { exported("llama", {.output = "/back", .model_type = "lama"}); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--architecture lama: is not known; use one of "), HasSubstr("\"llama\""))));
}

// A program that reads the file would find an infinite weight.
TEST_F(Exchange, RefusesATypeThatCannotHoldAWeight) {
  std::string weights = text("/llama/model.safetensors");
  const float large = 70000;
  std::memcpy(weights.data() + weights.size() - sizeof large, &large, sizeof large);
  write_text(files, "/llama/model.safetensors", weights);
  EXPECT_THAT([&] { exported("llama", {.output = "/small", .dtype = DType::Float16}); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("--dtype float16: tensor \""),
                        HasSubstr("has the value 70000, which is too large for this type; use --dtype bfloat16"))));
  EXPECT_NO_THROW(export_model(files, "/checkpoints-of-llama", {.output = "/back", .dtype = DType::BFloat16}));
  for (const auto& [key, type, weight, advice] : std::vector<std::tuple<std::string, std::string, float, std::string>>{
           {"dtype", "float16", 70000.0F, "use --dtype bfloat16 or --dtype float32"},
           {"torch_dtype", "float16", 70000.0F, "use --dtype bfloat16 or --dtype float32"},
           {"dtype", "bfloat16", std::numeric_limits<float>::max(), "use --dtype float32"}}) {
    const std::string half = key + type;
    std::memcpy(weights.data() + weights.size() - sizeof weight, &weight, sizeof weight);
    write_model(files, "/" + half, kSmallLlama.substr(0, kSmallLlama.rfind('}')) + ", \"" + key + "\": \"" + type + "\"}",
                weights);
    EXPECT_THAT(
        [&] { exported(half, {.output = "/like", .like = "/" + half}); },
        ThrowsMessage<ConfigError>(AllOf(testing::StartsWith(key + " of /" + half + "/config.json, " + type + ": tensor \""),
                                         testing::EndsWith(advice))));
  }
}

TEST_F(Exchange, NamesWhatIsWrongWithTheFolderThatTheModelIsToBeLike) {
  exported("llama", {.output = "/first"});
  create_directories(files, "/adapter");
  write_text(files, "/adapter/adapter_config.json", "{}");
  for (const std::string like : {"/nothing", "/llama/config.json", "/adapter"}) {
    EXPECT_THAT([&] { export_model(files, "/checkpoints-of-llama", {.output = "/back", .like = like}); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("--like " + like + ": there is no file config.json in it"),
                                                 HasSubstr(like == "/adapter" ? "not that of its adapter" : "began with"))));
  }
}

TEST_F(Exchange, KeepsTheOriginalsConfigAndTokenizer) {
  write_text(files, "/gpt2/config.json",
             kSmallGpt2.substr(0, kSmallGpt2.size() - 1) + R"(, "eos_token_id": 3, "dtype": "bfloat16"})");
  write_text(files, "/gpt2/tokenizer.model", "their tokenizer");
  write_text(files, "/gpt2/README.md", "not copied");
  const Exported result = exported("gpt2", {.output = "/back", .like = "/gpt2"});
  EXPECT_THAT(result.files, ElementsAre("model.safetensors", "tokenizer.model", "config.json"));
  EXPECT_THAT(result.notes, testing::IsEmpty());
  EXPECT_EQ(text("/back/tokenizer.model"), "their tokenizer");
  const auto config = nlohmann::json::parse(text("/back/config.json"));
  EXPECT_EQ(config.at("eos_token_id"), 3);
  EXPECT_EQ(config.at("dtype"), "bfloat16") << "that of the original";
  EXPECT_EQ(text("/back/model.safetensors"), file_of(small_gpt2_tensors(), DType::BFloat16));
  EXPECT_THAT(
      [&] { export_model(files, "/checkpoints-of-gpt2", {.output = "/other", .like = "/llama"}); },
      ThrowsMessage<ConfigError>(HasSubstr("--like /llama: describes another model: in the checkpoint, model.type is")));
  for (const std::string broken : {"{", "[]"}) {
    write_text(files, "/gpt2/generation_config.json", broken);
    EXPECT_THAT([&] { export_model(files, "/checkpoints-of-gpt2", {.output = "/third", .like = "/gpt2"}); },
                ThrowsMessage<ConfigError>("--like: /gpt2/generation_config.json is no JSON object; restore or remove it"));
  }
  files.remove("/gpt2/generation_config.json");
  files.create_directory("/gpt2/merges.txt");
  EXPECT_THAT(export_model(files, "/checkpoints-of-gpt2", {.output = "/third", .like = "/gpt2"}).notes,
              ElementsAre(HasSubstr("/gpt2/merges.txt was not copied, because it is a folder, a pipe or a device")));
}

TEST_F(Exchange, WhatAnInterruptedExportLeftIsReplacedByTheNext) {
  const Exported whole = exported("gpt2", {.output = "/whole"});
  create_directories(files, "/again");
  write_text(files, "/again/.trivet-export-unfinished", "");
  write_text(files, "/again/model-00001-of-00002.safetensors", "half");
  write_text(files, "/again/config.json.tmp", "{");
  const Exported again = export_model(files, "/checkpoints-of-gpt2", {.output = "/again"});
  EXPECT_EQ(again.files, whole.files);
  EXPECT_EQ(files.list("/again").size(), files.list("/whole").size());
  for (const std::string& file : whole.files) EXPECT_EQ(text("/again/" + file), text("/whole/" + file)) << file;
  // Nothing that somebody else has put there is removed.
  write_text(files, "/again/.trivet-export-unfinished", "");
  write_text(files, "/again/notes.txt", "mine");
  EXPECT_THROW(export_model(files, "/checkpoints-of-gpt2", {.output = "/again"}), ConfigError);
  EXPECT_EQ(text("/again/notes.txt"), "mine");
}

TEST_F(Exchange, RefusesAFolderToWhichAnotherExportWrites) {
  exported("gpt2", {.output = "/whole"});
  create_directories(files, "/shared");
  {
    const FolderClaim other(files, "/shared");
    write_text(files, "/shared/.trivet-export-unfinished", "");
    write_text(files, "/shared/model.safetensors.tmp", "half");
    EXPECT_THAT([&] { export_model(files, "/checkpoints-of-gpt2", {.output = "/shared"}); },
                ThrowsMessage<ConfigError>(
                    AllOf(HasSubstr("--output /shared: process "),
                          HasSubstr("is exporting to it; wait until it has ended, or choose another directory"))));
    EXPECT_EQ(text("/shared/model.safetensors.tmp"), "half");
  }
  export_model(files, "/checkpoints-of-gpt2", {.output = "/shared"});
  EXPECT_EQ(files.list("/shared").size(), files.list("/whole").size());
}

TEST_F(Exchange, RefusesWhatItCannotWrite) {
  import_model(files, PretrainedModel(files, "/llama"), "/out");
  EXPECT_THAT([&] { export_model(files, "/out", {.output = "/llama"}); },
              ThrowsMessage<ConfigError>("--output /llama: is not empty; choose another directory"));
  EXPECT_THAT([&] { export_model(files, "/out", {.output = "/x", .model_type = "gpt2"}); },
              ThrowsMessage<ConfigError>(
                  "/out: no architecture of Hugging Face can store this model: \"gpt2\": model.type is \"llama\""));
  const std::string path = "/out/step-00000000/manifest.json", name = "blocks.0.mlp.down.weight";
  checkpoint::Manifest manifest = checkpoint::parse_manifest(text(path), path);
  const auto turn = [](Shape& shape) { shape = {shape[1], shape[0]}; };
  turn(manifest.tensors.at(name).shape);
  for (checkpoint::StoredPiece& piece : manifest.pieces)
    if (piece.tensor == name) turn(piece.box_shape);
  files.remove(path);
  write_text(files, path, to_text(manifest));
  EXPECT_THAT([&] { export_model(files, "/out", {.output = "/x"}); }, ThrowsMessage<CheckpointError>(HasSubstr("is needed")));
  EXPECT_EQ(files.kind("/x"), EntryKind::Missing);
}

}  // namespace
}  // namespace trivet::hugging_face
