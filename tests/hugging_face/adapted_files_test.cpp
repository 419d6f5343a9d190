// Adapters that PEFT saved, alone and next to a model. That the sums are those of PEFT, golden_test.cpp tests.
#include "interchange/hugging_face/adapted_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kQuery = "base_model.model.model.layers.0.self_attn.q_proj";
const std::string kLora = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "/model", "bias": "none",
                              "rank_pattern": {}, "loftq_config": {}, "target_modules": ["q_proj"], "inference_mode": true)";

std::string replaced(const std::string& old_text, const std::string& new_text) {
  std::string config = kLora + "}";
  return config.replace(config.find(old_text), old_text.size(), new_text);
}

std::string with_rank_pattern(const std::string& pattern) { return replaced("{}", pattern); }

class Adapted : public testing::Test {
 protected:
  Adapted() {
    write_model(files, "/model", kSmallLlama, file_of(small_llama_tensors()));
    write_adapter("/adapter", kLora + "}");
  }
  void write_adapter(const std::string& folder, const std::string& config,
                     const std::map<std::string, Shape>& tensors = {{kQuery + ".lora_A.weight", {2, 8}},
                                                                    {kQuery + ".lora_B.weight", {8, 2}}}) {
    create_directories(files, folder);
    write_text(files, folder + "/adapter_config.json", config);
    write_text(files, folder + "/adapter_model.safetensors", file_of(tensors));
  }
  std::vector<float> queries(const std::string& folder) {
    const PretrainedModel model(files, folder);
    std::vector<float> rows(8 * 8);
    const Shape shape = model.weights().find("blocks.0.attention.qkv.weight")->shape;
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece("blocks.0.attention.qkv.weight", shape, 0, {rows.data(), DType::Float32, {64}});
    model.weights().read({&piece, 1});
    return rows;
  }
  void expect_refused(const std::string& folder, const testing::Matcher<std::string>& message) {
    EXPECT_THAT([&] { PretrainedModel(files, folder); }, ThrowsMessage<Error>(message));
  }

  support::MemoryFileSystem files;
};

TEST_F(Adapted, WeightsAreThoseOfTheModelPlusTheProduct) {
  const std::vector<float> base = queries("/model"), adapted = queries("/adapter");
  for (size_t row = 0; row < 8; ++row)
    for (size_t column = 0; column < 8; ++column) {
      double sum = 0;  // file_of counts up from 1 in A and from 2 in B
      for (size_t k = 0; k < 2; ++k)
        sum += (2 + static_cast<double>(row * 2 + k) / 64) * (1 + static_cast<double>(k * 8 + column) / 64);
      EXPECT_FLOAT_EQ(adapted[row * 8 + column], base[row * 8 + column] + static_cast<float>(2 * sum));
    }
  const PretrainedModel model(files, "/adapter");
  EXPECT_THAT(model.notes(),
              testing::ElementsAre("the adapter of PEFT in /adapter was added to 1 weight of the model in /model"));
  EXPECT_NE(model.digest(), PretrainedModel(files, "/model").digest());
  EXPECT_EQ(model.folder(), "/model");
}

TEST_F(Adapted, ASumThatIsNotFiniteNamesBothFiles) {
  std::string weights = read_text(files, "/adapter/adapter_model.safetensors", 1 << 20);
  weights.replace(weights.size() - 4, 4, std::string(4, '\xFF'));  // the last number of B is NaN
  write_text(files, "/adapter/adapter_model.safetensors", weights);
  EXPECT_THAT(
      [&] { import_model(files, PretrainedModel(files, "/adapter"), "/imported"); },
      ThrowsMessage<CheckpointError>(AllOf(HasSubstr("q_proj.weight\" of /model/model.safetensors, to which tensor"),
                                           HasSubstr("lora_B.weight\" of /adapter/adapter_model.safetensors were added"),
                                           HasSubstr("has an element that is nan"))));
}

TEST_F(Adapted, AnAdapterNextToAModelIsAddedToIt) {
  write_adapter("/model", kLora + "}");
  const std::vector<float> both = queries("/model");
  files.remove("/model/adapter_config.json");
  expect_refused("/model", HasSubstr("/model: holds adapter_model.safetensors without adapter_config.json"));
  files.remove("/model/adapter_model.safetensors");
  EXPECT_EQ(both, queries("/adapter"));
  write_text(files, "/model/adapter_config.json", kLora + "}");
  expect_refused("/model", HasSubstr("/model: holds adapter_config.json without adapter_model.safetensors"));
}

TEST_F(Adapted, SaysWhichModelItNeeds) {
  std::string elsewhere = kLora + "}";
  elsewhere.replace(elsewhere.find("/model"), 6, "meta-llama/Llama-2-7b-hf");
  write_adapter("/adapter", elsewhere);
  expect_refused("/adapter",
                 AllOf(HasSubstr("/adapter: holds an adapter of PEFT (LoRA) for the model \"meta-llama/Llama-2-7b-hf\""),
                       HasSubstr("base_model_name_or_path of /adapter/adapter_config.json")));
  write_adapter("/adapter", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})");
  expect_refused("/adapter", HasSubstr("does not name it; set base_model_name_or_path"));
  write_adapter("/model", kLora + "}");
  write_adapter("/second", kLora + "}");
  expect_refused("/second", HasSubstr("which holds an adapter itself"));
}

TEST_F(Adapted, RefusesByNameWhatItCannotAdd) {
  for (const auto& [member, key] : std::map<std::string, std::string>{{R"("use_dora": true)", "use_dora"},
                                                                      {R"("modules_to_save": ["lm_head"])", "modules_to_save"},
                                                                      {R"("alpha_pattern": {"q_proj": 3})", "alpha_pattern"},
                                                                      {R"("init_lora_weights": "pissa")", "init_lora_weights"},
                                                                      {R"("new_feature": 3)", "new_feature"}}) {
    write_adapter("/adapter", kLora + ", " + member + "}");
    expect_refused("/adapter", HasSubstr("/adapter/adapter_config.json: " + key + ":"));
  }
  std::string other = kLora + "}";
  other.replace(other.find("LORA"), 4, "IA3");
  write_adapter("/adapter", other);
  expect_refused("/adapter", HasSubstr("peft_type: \"IA3\" is not accepted; use \"LORA\""));
  const std::string a = kQuery + ".lora_A.weight", b = kQuery + ".lora_B.weight";
  write_adapter("/adapter", kLora + "}", {{a, {2, 8}}});
  expect_refused("/adapter", HasSubstr("has no lora_B"));
  write_adapter("/adapter", kLora + "}", {{a, {2, 7}}, {b, {8, 2}}});
  expect_refused("/adapter", HasSubstr("do not fit the weight"));
  write_adapter("/adapter", kLora + "}", {{a, {3, 8}}, {b, {8, 3}}});
  expect_refused("/adapter", HasSubstr("has rank 3, but adapter_config.json says 2 (\"r\", \"rank_pattern\")"));
  write_adapter("/adapter", with_rank_pattern(R"({"layers.0.self_attn.q_proj": 3})"), {{a, {3, 8}}, {b, {8, 3}}});
  EXPECT_EQ(queries("/adapter").size(), queries("/model").size());
  for (const auto& [config, wrong] : std::map<std::string, std::string>{
           {with_rank_pattern(R"({"q_proj": 4})"), "has rank 2, but adapter_config.json says 4"},
           {with_rank_pattern(R"({"q_proj": 0})"), "rank_pattern: {\"q_proj\":0} is not accepted; use an object of names"},
           {with_rank_pattern("[2]"), "rank_pattern: [2] is not accepted"},
           {with_rank_pattern(R"({"(": 4})"), "it is not accepted as a regular expression: missing closing parenthesis"},
           {replaced(R"("r": 2)", R"("r": 0)"), "r: 0 is not accepted; use a rank from 1 on"},
           {kLora + R"(, "exclude_modules": ["q_proj"]})",
            "adapts a module that \"exclude_modules\" of adapter_config.json names"},
           {kLora + R"(, "exclude_modules": 5})", "exclude_modules: 5 is not accepted; use a list of names"}}) {
    write_adapter("/adapter", config);
    expect_refused("/adapter", HasSubstr(wrong));
  }
  write_text(files, "/adapter/adapter_model.safetensors", "\x1F\x8B\x08" + std::string(100, '\xff'));
  expect_refused("/adapter", HasSubstr("/adapter/adapter_model.safetensors: is packed with gzip, not a file of safetensors"));
  write_adapter("/adapter", kLora + "}", {});
  expect_refused("/adapter", HasSubstr("/adapter/adapter_model.safetensors holds no matrices"));
  write_adapter("/adapter", replaced("q_proj", "v_proj"));
  expect_refused("/adapter", HasSubstr("adapts a module that \"target_modules\" of adapter_config.json does not name"));
  for (const char* layers : {"[5]", "5", "[1, 2]"}) {
    write_adapter("/adapter", kLora + R"(, "layers_to_transform": )" + layers + "}");
    expect_refused("/adapter", HasSubstr("adapts layer 0, which \"layers_to_transform\" of adapter_config.json does not name"));
  }
  write_adapter("/adapter", kLora + R"(, "layers_to_transform": "all"})");
  expect_refused("/adapter", HasSubstr("layers_to_transform: \"all\" is not accepted; use the number of a layer"));
  write_adapter("/adapter", kLora + R"(, "layers_to_transform": [0, 3]})");
  EXPECT_THAT(PretrainedModel(files, "/adapter").notes(),
              testing::Contains("adapter_config.json names layer 3, for which the adapter has no weights"));
  write_adapter("/adapter", replaced(R"(["q_proj"])", R"(".*[.][qk]_proj")"));
  EXPECT_THAT(
      PretrainedModel(files, "/adapter").notes(),
      testing::Contains("adapter_config.json names model.layers.0.self_attn.k_proj, for which the adapter has no weights"));
  write_adapter("/adapter", kLora + "}",
                {{"base_model.model.other.lora_A.weight", {2, 8}}, {"base_model.model.other.lora_B.weight", {8, 2}}});
  expect_refused("/adapter", HasSubstr("adapts \"other.weight\", which /model does not hold"));
  write_adapter("/adapter", kLora + "}", {{"base_model.model.lm_head.weight", {5, 8}}});
  expect_refused("/adapter", HasSubstr("is no matrix of an adapter"));
}

}  // namespace
}  // namespace trivet::hugging_face
