// A checkpoint with low-rank adapters, exported as adapters of PEFT and merged into the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/converted_source.h"
#include "engine/config/explain.h"
#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/merged_source.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/peft.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "model/lora.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"
#include "trainer/new_adapters.h"

namespace trivet::hugging_face {
namespace {

using checkpoint::Piece;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<float> read_all(const checkpoint::TensorSource& source, const std::string& name) {
  const Shape shape = source.find(name)->shape;
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  const Piece piece = checkpoint::whole_box_piece(name, shape, 0, {values.data(), DType::Float32, {shape.elements()}});
  source.read({&piece, 1});
  return values;
}

// The same tensors, but B of adapters, which would be zeros, are ones.
class OtherUps final : public checkpoint::TensorSource {
 public:
  explicit OtherUps(trainer::NewAdapters weights) : weights_(std::move(weights)) {}
  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override { return weights_.find(name); }
  void read(std::span<const Piece> wanted) const override {
    weights_.read(wanted);
    for (const Piece& piece : wanted)
      if (piece.name.ends_with("lora_b")) std::fill_n(piece.data.as<float>(), piece.count, 1.0f);
  }

 private:
  trainer::NewAdapters weights_;
};

class LoraExportTest : public testing::Test {
 protected:
  LoraExportTest() {
    write_model(files, "/llama", kSmallLlama, file_of(small_llama_tensors()));
    write_model(files, "/gpt2", kSmallGpt2, file_of(small_gpt2_tensors()));
    write_model(files, "/phi3", small_llama_as("phi3"), file_of(small_phi3_tensors()));
  }

  // Saves the model with adapters whose elements count up in eighths, at /checkpoints-of-NAME.
  // `narrow`: frozen weights are stored as bfloat16, as by a run in 16 bits.
  void save(const std::string& name, std::vector<std::string> targets, bool narrow = false) {
    const PretrainedModel pretrained(files, "/" + name);
    Config config = pretrained.config();
    config.model.lora = {.rank = 2, .alpha = 1, .targets = std::move(targets)};
    const model::Model built = model::build(config.model);
    const trainer::NewAdapters weights(pretrained.weights(), built, 1);
    std::vector<std::vector<float>> values;
    std::vector<std::vector<bfloat16>> narrowed;
    std::vector<Piece> pieces;
    for (size_t layer = 0; layer < built.layers.size(); ++layer)
      for (size_t i = 0; i < built.layers[layer]->parameters().size(); ++i) {
        const ParameterSpec& spec = built.layers[layer]->parameters()[i];
        if (!spec.tied_to.empty()) continue;
        const std::string full = parameter_name(built, layer, i);
        values.push_back(read_all(weights, full));
        if (model::is_adapter(full))
          for (size_t e = 0; e < values.back().size(); ++e) values.back()[e] = static_cast<float>(e + 1) / 8;
        TensorView data{values.back().data(), DType::Float32, {spec.shape.elements()}};
        if (narrow && !spec.trainable) {
          auto& rounded = narrowed.emplace_back();
          for (const float value : values.back()) rounded.push_back(bfloat16(value));
          data = {rounded.data(), DType::BFloat16, data.shape};
        }
        pieces.push_back(checkpoint::whole_box_piece(full, spec.shape, 0, data));
      }
    checkpoint::CheckpointStore store(files, {.directory = "/checkpoints-of-" + name, .run_id = "test", .section = "test"});
    store.save({.step = 0, .pieces = pieces, .state = to_text(checkpoint::RunState{}), .config = explain_as_json(config)}, {});
  }
  Exported exported(const std::string& name, const ExportOptions& options) {
    return export_model(files, "/checkpoints-of-" + name, options);
  }
  nlohmann::json json(const std::string& path) { return nlohmann::json::parse(read_text(files, path, 1 << 20)); }
  // The tensors of the file of adapters, with their shapes.
  std::map<std::string, std::string> tensors(const std::string& path) {
    const std::string text = read_text(files, path, 1 << 20);
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data(), 8);
    std::map<std::string, std::string> shapes;
    const nlohmann::json header = nlohmann::json::parse(text.substr(8, bytes));
    for (const auto& [name, entry] : header.items())
      if (name != "__metadata__") shapes[name] = entry.at("shape").dump();
    return shapes;
  }

  support::MemoryFileSystem files;
};

TEST_F(LoraExportTest, AdaptersHaveTheNamesAndKeysOfPeft) {
  save("llama", {"v_proj", "down_proj"});
  const Exported result = exported("llama", {.output = "/out", .like = "/llama", .lora = LoraExport::Peft});
  EXPECT_THAT(result.files, ElementsAre("adapter_model.safetensors", "adapter_config.json"));
  const std::string block = "base_model.model.model.layers.0.";
  EXPECT_EQ(tensors("/out/adapter_model.safetensors"),
            (std::map<std::string, std::string>{{block + "self_attn.v_proj.lora_A.weight", "[2,8]"},
                                                {block + "self_attn.v_proj.lora_B.weight", "[4,2]"},
                                                {block + "mlp.down_proj.lora_A.weight", "[2,6]"},
                                                {block + "mlp.down_proj.lora_B.weight", "[8,2]"}}));
  const nlohmann::json config = json("/out/adapter_config.json");
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("task_type"), "CAUSAL_LM");
  EXPECT_EQ(config.at("r"), 2);
  EXPECT_EQ(config.at("lora_alpha"), 1.0);
  EXPECT_EQ(config.at("base_model_name_or_path"), "/llama");
  EXPECT_EQ(config.at("fan_in_fan_out"), false);
  EXPECT_EQ(config.at("target_modules"), nlohmann::json({"mlp.down_proj", "self_attn.v_proj"}));
}

// GPT-2 stores its projections transposed.
TEST_F(LoraExportTest, AdaptersOfGpt2SayThatItsMatricesAreTransposed) {
  save("gpt2", {"c_attn"});
  exported("gpt2", {.output = "/out", .lora = LoraExport::Peft});
  EXPECT_EQ(json("/out/adapter_config.json").at("fan_in_fan_out"), true);
  EXPECT_TRUE(json("/out/adapter_config.json").at("base_model_name_or_path").is_null());
  EXPECT_EQ(tensors("/out/adapter_model.safetensors").at("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"),
            "[12,2]");
}

// Values are sums of few products of small fractions, so float32 and the expectation in double are exact.
TEST_F(LoraExportTest, MergedWeightsHaveTheAdaptersProductAdded) {
  for (const std::string name : {"llama", "gpt2"}) {
    save(name, {name == "llama" ? "v_proj|up_proj" : "c_attn"});
    EXPECT_EQ(exported(name, {.output = "/merged-" + name, .lora = LoraExport::Merged}).model_type, name);
    const PretrainedModel before(files, "/" + name), after(files, "/merged-" + name);
    const model::Model plain = model::build(before.description());
    for (size_t layer = 0; layer < plain.layers.size(); ++layer)
      for (size_t i = 0; i < plain.layers[layer]->parameters().size(); ++i) {
        const ParameterSpec& spec = plain.layers[layer]->parameters()[i];
        if (!spec.tied_to.empty()) continue;
        const std::string full = parameter_name(plain, layer, i);
        std::vector<float> expected = read_all(before.weights(), full);
        int64_t first = 0, rows = 0;  // that have an adapter
        if (full == "blocks.0.attention.qkv.weight") first = name == "llama" ? 12 : 0, rows = name == "llama" ? 4 : 12;
        if (full == "blocks.0.mlp.gate_up.weight") first = 6, rows = 6;
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t column = 0; column < spec.shape[1]; ++column) {
            double sum = 0;
            for (int64_t k = 0; k < 2; ++k)
              sum += static_cast<double>(row * 2 + k + 1) / 8 * static_cast<double>(k * spec.shape[1] + column + 1) / 8;
            expected[static_cast<size_t>((first + row) * spec.shape[1] + column)] += static_cast<float>(0.5 * sum);
          }
        EXPECT_EQ(read_all(after.weights(), full), expected) << full;
      }
  }
}

// Each expert has W += 0.5 B A. PEFT has columns of B in turns of experts, and gpt-oss rows in turns of gate and up.
TEST_F(LoraExportTest, AdaptersOfExpertsAreMergedAndHaveTheFormOfPeft) {
  write_model(files, "/mixtral", small_mixtral(), file_of(small_mixtral_tensors()));
  write_model(files, "/gpt_oss", small_later("gpt_oss"), file_of(small_gpt_oss_tensors()));
  for (const std::string name : {"mixtral", "gpt_oss"}) {
    save(name, {"mlp.experts.gate_up_proj", "experts.down_proj"});
    exported(name, {.output = "/merged-" + name, .lora = LoraExport::Merged});
    exported(name, {.output = "/peft-" + name, .lora = LoraExport::Peft});
    write_model(files, "/file-" + name, "{}", read_text(files, "/peft-" + name + "/adapter_model.safetensors", 1 << 20));
    const ModelFiles theirs(files, "/file-" + name);
    EXPECT_EQ(theirs.names().size(), 4U);
    const PretrainedModel before(files, "/" + name), after(files, "/merged-" + name);
    const int64_t experts = before.description().experts.count;
    for (const bool gate_up : {true, false}) {
      const std::string ours = gate_up ? "blocks.0.mlp.experts.gate_up.weight" : "blocks.0.mlp.experts.down.weight";
      const std::string module = std::string("base_model.model.model.layers.0.mlp.experts") + (gate_up ? ".base_layer" : "");
      const std::vector<float> a = read_all(theirs, module + ".lora_A.weight"), b = read_all(theirs, module + ".lora_B.weight");
      const Shape shape = before.weights().find(ours)->shape;
      const int64_t out = shape[0] / experts, in = shape[1];
      std::vector<float> expected = read_all(before.weights(), ours);
      for (int64_t expert = 0; expert < experts; ++expert)
        for (int64_t row = 0; row < out; ++row)
          for (int64_t column = 0; column < in; ++column) {
            const bool turns = gate_up && name == "gpt_oss";
            const int64_t their_row = !turns ? row : row < out / 2 ? 2 * row : 2 * (row - out / 2) + 1;
            float sum = 0, of_ours = 0;
            for (int64_t k = 0; k < 2; ++k) {
              const int64_t a_row = expert * 2 + k, b_row = expert * out + row;
              sum += b.at(static_cast<size_t>(their_row * 2 * experts + k * experts + expert)) *
                     a.at(static_cast<size_t>(a_row * in + column));
              of_ours += static_cast<float>(b_row * 2 + k + 1) / 8 * static_cast<float>(a_row * in + column + 1) / 8;
            }
            ASSERT_EQ(sum, of_ours) << ours << " " << expert << " " << row << " " << column;
            expected[static_cast<size_t>((expert * out + row) * in + column)] += sum / 2;
          }
      EXPECT_EQ(read_all(after.weights(), ours), expected) << ours;
    }
    const nlohmann::json config = json("/peft-" + name + "/adapter_config.json");
    EXPECT_EQ(config.at("target_parameters"), nlohmann::json({"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}));
    EXPECT_EQ(config.at("target_modules"), nlohmann::json::array());
  }
}

// All forms in which files have experts: one by one with both names, together, and together with inputs first.
TEST_F(LoraExportTest, AFolderOfPeftHasTheWeightsOfTheMergedModel) {
  struct Case {
    std::string name, config;
    std::map<std::string, Shape> tensors;
    std::vector<std::string> targets;
  };
  const std::vector<std::string> all{"all-linear", ".*mlp.experts.*"};
  for (const auto& [name, config, tensors, targets] :
       {Case{"mixtral", small_mixtral(), small_mixtral_tensors(), all},
        Case{"qwen3", small_qwen3_moe(), small_qwen3_moe_tensors(), all},
        Case{"fused", small_qwen3_moe(), small_fused_experts(), all},
        Case{"gpt_oss", small_later("gpt_oss"), small_gpt_oss_tensors(), all},
        Case{"shared", small_dots1(), small_dots1_tensors(), all},
        Case{"down", small_later("gpt_oss"), small_gpt_oss_tensors(), {"mlp.experts.down_proj"}},
        Case{"gate_up", small_qwen3_moe(), small_qwen3_moe_tensors(), {"mlp.experts.gate_up_proj"}}}) {
    write_model(files, "/" + name, config, file_of(tensors));
    save(name, targets);
    exported(name, {.output = "/merged-" + name, .lora = LoraExport::Merged});
    exported(name, {.output = "/peft-" + name, .like = "/" + name, .lora = LoraExport::Peft});
    const PretrainedModel merged(files, "/merged-" + name), adapted(files, "/peft-" + name), before(files, "/" + name);
    EXPECT_THAT(adapted.notes(), testing::Not(testing::Contains(HasSubstr("no weights")))) << name;
    const model::Model model = model::build(before.description());
    int changed = 0;
    for (size_t layer = 0; layer < model.layers.size(); ++layer)
      for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
        const std::string full = parameter_name(model, layer, i);
        const std::vector<float> values = read_all(adapted.weights(), full);
        EXPECT_EQ(values, read_all(merged.weights(), full)) << name << " " << full;
        changed += values == read_all(before.weights(), full) ? 0 : 1;
      }
    EXPECT_EQ(changed, targets.size() > 1 ? (name == "shared" ? 6 : 4) : 1) << name;
  }
}

TEST_F(LoraExportTest, BrokenAdaptersOfExpertsAreNamed) {
  write_model(files, "/mixtral", small_mixtral(), file_of(small_mixtral_tensors()));
  const std::string experts = "base_model.model.model.layers.0.mlp.experts.", inner = experts + "base_layer.";
  const auto message = [&](std::map<std::string, Shape> tensors, const std::string& parameters) -> std::string {
    create_directories(files, "/adapter");
    write_text(files, "/adapter/adapter_config.json",
               R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": [], "base_model_name_or_path": "/mixtral",
                   "target_parameters": [)" +
                   parameters + "]}");
    write_text(files, "/adapter/adapter_model.safetensors", file_of(tensors));
    try {
      const PretrainedModel model(files, "/adapter");
      return model.notes().back();
    } catch (const Error& error) {
      return error.what();
    }
  };
  const std::string a = "lora_A.weight", b = "lora_B.weight", down = "\"experts.down_proj\"",
                    both = down + ", \"gate_up_proj\"";
  EXPECT_THAT(message({{experts + a, {4, 6}}, {experts + b, {8, 4}}}, down), HasSubstr("was added to 2 weights"));
  EXPECT_THAT(message({{experts + a, {4, 6}}, {experts + b, {8, 4}}}, both),
              HasSubstr("is one of two adapters of these experts"));
  EXPECT_THAT(message({{experts + a, {4, 6}}, {experts + b, {8, 4}}}, "\"gate_up_proj\""),
              HasSubstr("do not fit 2 experts of 12 outputs and 8 inputs"));
  EXPECT_THAT(message({{experts + a, {4, 6}}}, down), HasSubstr("has no lora_B that belongs to it"));
  EXPECT_THAT(message({{experts + a, {2, 6}}, {experts + b, {8, 2}}}, down),
              HasSubstr("has rank 1, but adapter_config.json says 2"));
  EXPECT_THAT(message({{inner + a, {4, 8}}, {inner + b, {12, 4}}}, down), HasSubstr("does not name"));
  auto uneven = small_mixtral_tensors();
  uneven["model.layers.0.block_sparse_moe.experts.1.w2.weight"] = {9, 6};
  write_model(files, "/mixtral", small_mixtral(), file_of(uneven));
  EXPECT_THAT(message({{experts + a, {4, 6}}, {experts + b, {8, 4}}}, down),
              HasSubstr("adapts \"model.layers.0.mlp.experts.down_proj\", which /mixtral does not hold"));
  auto none = small_mixtral_tensors();
  none["model.layers.0.mlp.experts.down_proj"] = {0, 8, 6};
  write_model(files, "/mixtral", small_mixtral(), file_of(none));
  EXPECT_THAT(message({{experts + a, {4, 6}}, {experts + b, {8, 4}}}, down), HasSubstr("which /mixtral does not hold"));
  write_model(files, "/mixtral", small_mixtral(), file_of(small_mixtral_tensors()));
  const std::string other = "base_model.model.model.layers.1.mlp.experts.";
  EXPECT_THAT(message({{other + a, {4, 6}}, {other + b, {8, 4}}}, down),
              HasSubstr("adapts \"model.layers.1.mlp.experts.down_proj\""));
  EXPECT_THAT(message({{inner + a, {4, 8}}, {inner + b, {12, 4}}}, both),
              HasSubstr("names the parameter experts.down_proj, for which the adapter has no weights"));
}

TEST_F(LoraExportTest, AnAdapterOfDownAloneIsNotWrapped) {
  model::Description d = model::with_defaults({.type = model::Type::Llama,
                                               .layers = 3,
                                               .hidden_size = 8,
                                               .heads = 2,
                                               .vocabulary_size = 5,
                                               .tied_embedding = false,
                                               .experts = {.count = 4, .per_token = 2, .feed_forward_size = 6}});
  d.lora = {.rank = 2, .targets = {"mlp.experts.down_proj", "layers.1.mlp.experts.gate_up_proj"}};
  const PeftAdapters adapters = peft_adapters(mixtral(), d, "");
  std::vector<std::string> names;
  for (const auto& [name, rows] : adapters.tensors)
    if (name.ends_with("lora_A.weight")) names.push_back(name + " " + rows[0].tensor);
  const std::string layer = "base_model.model.model.layers.";
  EXPECT_THAT(names, testing::ElementsAre(layer + "0.mlp.experts.lora_A.weight blocks.0.mlp.experts.down.lora_a",
                                          layer + "1.mlp.experts.base_layer.lora_A.weight blocks.1.mlp.experts.gate_up.lora_a",
                                          layer + "1.mlp.experts.lora_A.weight blocks.1.mlp.experts.down.lora_a",
                                          layer + "2.mlp.experts.lora_A.weight blocks.2.mlp.experts.down.lora_a"));
  EXPECT_EQ(nlohmann::json::parse(adapters.config).at("target_parameters"),
            nlohmann::json({"mlp.experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj"}));
}

TEST_F(LoraExportTest, FrozenWeightsOfARunIn16BitsAreRead) {
  save("llama", {"v_proj"}, true);
  exported("llama", {.output = "/merged", .lora = LoraExport::Merged});
  const PretrainedModel before(files, "/llama"), after(files, "/merged");
  const std::string name = "blocks.0.mlp.down.weight";
  std::vector<float> expected = read_all(before.weights(), name);
  for (float& value : expected) value = static_cast<float>(bfloat16(value));
  EXPECT_EQ(read_all(after.weights(), name), expected);
}

// Large transposed matrices are merged a range of columns at a time.
TEST_F(LoraExportTest, APartOfAMergedMatrixIsThatOfTheWhole) {
  const PretrainedModel pretrained(files, "/llama");
  model::Description description = pretrained.description();
  description.lora = {.rank = 2, .alpha = 1, .targets = {"down_proj"}};
  const OtherUps weights(trainer::NewAdapters(pretrained.weights(), model::build(description), 7));
  const MergedSource merged(weights, description);
  const std::string name = "blocks.0.mlp.down.weight";
  const std::vector<float> all = read_all(merged, name);
  EXPECT_NE(all, read_all(pretrained.weights(), name));
  // Rows 2 to 4 of columns 3 to 5, from the second element on.
  std::vector<float> part(7);
  const Piece piece{name, {8, 6}, {2, 3}, {3, 3}, 1, 7, {part.data(), DType::Float32, {7}}};
  merged.read({&piece, 1});
  EXPECT_EQ(part, (std::vector<float>{all[16], all[17], all[21], all[22], all[23], all[27], all[28]}));
}

TEST_F(LoraExportTest, TargetModulesAreWholeNamesUnlessAllBlocksHaveThem) {
  model::Description description = model::with_defaults(
      {.type = model::Type::Llama, .layers = 2, .hidden_size = 8, .heads = 2, .vocabulary_size = 5, .tied_embedding = false});
  description.lora = {.rank = 2, .targets = {"q_proj", "layers.1.mlp.up_proj"}};
  const PeftAdapters adapters = peft_adapters(llama(), description, "");
  EXPECT_EQ(nlohmann::json::parse(adapters.config).at("target_modules"),
            nlohmann::json({"model.layers.1.mlp.up_proj", "self_attn.q_proj"}));
  EXPECT_EQ(adapters.tensors.size(), 6u);
}

TEST_F(LoraExportTest, TheFormMustBeChosenIfThereAreAdaptersAndNotOtherwise) {
  save("llama", {"v_proj"});
  EXPECT_THAT([&] { exported("llama", {.output = "/out"}); },
              ThrowsMessage<ConfigError>(HasSubstr("its model has low-rank adapters (model.lora); give --lora merged")));
  import_model(files, PretrainedModel(files, "/gpt2"), "/checkpoints-of-gpt2");
  EXPECT_THAT([&] { exported("gpt2", {.output = "/out", .lora = LoraExport::Merged}); },
              ThrowsMessage<ConfigError>(HasSubstr("has no low-rank adapters (model.lora); leave --lora out")));
}

TEST_F(LoraExportTest, APartOfAMatrixThatTheArchitectureDoesNotDivideCannotBeAnAdapterOfPeft) {
  save("phi3", {"v_proj", "o_proj"});
  EXPECT_THAT([&] { exported("phi3", {.output = "/out", .model_type = "phi3", .lora = LoraExport::Peft}); },
              ThrowsMessage<ConfigError>(HasSubstr("\"phi3\" keeps self_attn.v_proj in one matrix with others")));
  EXPECT_EQ(exported("phi3", {.output = "/merged", .model_type = "phi3", .lora = LoraExport::Merged}).model_type, "phi3");
}

// New adapters do not depend on how ranks divide them, and are those that a run from random weights has.
TEST_F(LoraExportTest, NewAdaptersComeToTheWeightsOfAModel) {
  const PretrainedModel pretrained(files, "/llama");
  model::Description description = pretrained.description();
  description.lora = {.rank = 2, .targets = {"o_proj"}};
  const trainer::NewAdapters weights(pretrained.weights(), model::build(description), 7);
  const std::string a = "blocks.0.attention.out.lora_a", b = "blocks.0.attention.out.lora_b";
  const std::vector<float> all = read_all(weights, a);
  EXPECT_EQ(read_all(weights, b), std::vector<float>(16, 0.0f));
  EXPECT_EQ(read_all(weights, "head.norm.gain"), read_all(pretrained.weights(), "head.norm.gain"));
  for (const float value : all) EXPECT_LT(std::abs(value), 1 / std::sqrt(8.0f));
  // Columns 4 to 7 of both rows, from the second element on.
  std::vector<float> part(6);
  const Piece piece{a, {2, 8}, {0, 4}, {2, 4}, 1, 6, {part.data(), DType::Float32, {6}}};
  weights.read({&piece, 1});
  EXPECT_EQ(part, (std::vector<float>{all[5], all[6], all[7], all[12], all[13], all[14]}));
  EXPECT_EQ(weights.find("blocks.0.attention.qkv.lora_a"), nullptr);
}

TEST_F(LoraExportTest, WeightsAreConvertedToTheTypeThatIsWanted) {
  const PretrainedModel pretrained(files, "/llama");
  const checkpoint::ConvertedSource converted(pretrained.weights());
  const std::string name = "blocks.0.mlp.down.weight";
  const std::vector<float> values = read_all(converted, name);
  std::vector<bfloat16> narrow(10);
  const Piece piece = checkpoint::whole_box_piece(name, {8, 6}, 7, {narrow.data(), DType::BFloat16, {10}});
  converted.read({&piece, 1});
  EXPECT_EQ(converted.find(name)->dtype, DType::Float32);
  EXPECT_EQ(checkpoint::ConvertedSource(pretrained.weights(), DType::BFloat16).find(name)->dtype, DType::BFloat16);
  for (size_t i = 0; i < narrow.size(); ++i)
    EXPECT_EQ(static_cast<float>(narrow[i]), static_cast<float>(bfloat16(values[7 + i])));
  const Piece wrong = checkpoint::whole_box_piece(name, {6, 8}, 0, {narrow.data(), DType::BFloat16, {10}});
  EXPECT_THAT([&] { converted.read({&wrong, 1}); }, ThrowsMessage<CheckpointError>(HasSubstr("is stored as float32 [8, 6]")));
}

}  // namespace
}  // namespace trivet::hugging_face
