// Reads and writes models with mixtures of experts. Those of ../shared/data/golden-moe have a reference in float64 by an
// implementation of their own, which agrees with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/peft.h"
#include "tests/data/files.h"
#include "tests/hugging_face/small_models.h"
#include "tests/model/whole_model.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using Values = std::vector<float>;

Values elements_of(const checkpoint::TensorSource& source, const std::string& name) {
  const Shape shape = source.find(name)->shape;
  Values data(static_cast<size_t>(shape.elements()));
  const checkpoint::Piece piece =
      checkpoint::whole_box_piece(name, shape, 0, {data.data(), DType::Float32, {shape.elements()}});
  source.read({&piece, 1});
  return data;
}

std::map<std::string, Values> all_tensors(FileSystem& files, const std::string& folder) {
  const ModelFiles tensors(files, folder);
  std::map<std::string, Values> all;
  for (const std::string& name : tensors.names()) all[name] = elements_of(tensors, name);
  return all;
}

// ---- The golden models.

std::string golden_folder(const std::string& name) { return data::shared_data("golden-moe/" + name); }

const std::string kBias = "router.correction_bias";  // it has no gradient

// Gradients by transformers' names: the rows of ours that they are.
struct TheirGradient {
  std::vector<double> values;
  double norm() const {
    double squares = 0;
    for (const double value : values) squares += value * value;
    return std::sqrt(squares);
  }
};

class GoldenExperts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(golden_folder(GetParam()));
    reference_ = nlohmann::json::parse(data::file_content(golden_folder(GetParam()) + "/reference.json"));
  }
  model::Batch batch() const {
    model::Batch batch;
    for (const auto& sequence : reference_["input_ids"]) {
      const auto tokens = sequence.get<std::vector<int32_t>>();
      batch.length = static_cast<int64_t>(tokens.size());
      batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
      batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
      batch.targets.push_back(-1);
      ++batch.sequences;
    }
    return batch;
  }
  std::unique_ptr<model::WholeModel> load(const PretrainedModel& pretrained, bool normalize = true, double z_loss = 0) const {
    model::Description description = pretrained.description();
    description.sequence_length = batch().length;
    description.experts.rule.normalize = normalize;
    description.experts.z_loss = z_loss;
    auto whole = std::make_unique<model::WholeModel>(description, DType::Float32, Device::Cpu);
    for (const std::string& name : whole->parameter_names()) {
      const TensorView weight = whole->weight(name);
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece(name, weight.shape, 0, {weight.data, DType::Float32, {weight.elements()}});
      pretrained.weights().read({&piece, 1});
    }
    return whole;
  }
  static std::map<std::string, TheirGradient> gradients(model::WholeModel& whole, const PretrainedModel& pretrained) {
    std::map<std::string, std::map<int64_t, std::vector<double>>> by_row;
    for (const auto& [ours, all] : pretrained.architecture().weights(pretrained.description())) {
      if (ours.ends_with(kBias)) continue;
      const TensorView gradient = whole.gradient(ours);
      const std::vector<double> whole_gradient = model::values_of(gradient);
      const int64_t row = gradient.elements() / gradient.shape[0];
      int64_t first = 0;
      for (const checkpoint::TheirRows& rows : all) {
        const int64_t count = rows.count > 0 ? rows.count : gradient.shape[0];
        const auto begin = whole_gradient.begin() + first * row;
        by_row[rows.tensor][rows.first].assign(begin, begin + count * row);
        first += count;
      }
    }
    std::map<std::string, TheirGradient> theirs;
    for (const auto& [tensor, all] : by_row)
      for (const auto& [first, values] : all)
        theirs[tensor].values.insert(theirs[tensor].values.end(), values.begin(), values.end());
    return theirs;
  }

  nlohmann::json reference_;
};

TEST_P(GoldenExperts, LogitsLossAndEveryGradientAreThoseOfTheReference) {
  const PretrainedModel pretrained(real_file_system(), golden_folder(GetParam()));
  const std::unique_ptr<model::WholeModel> loaded = load(pretrained);
  model::WholeModel& whole = *loaded;
  const model::Batch tokens = batch();
  const std::vector<double> logits = whole.logits(tokens);
  for (const auto& expected : reference_["logits"]) {
    const int64_t row = expected["sequence"].get<int64_t>() * tokens.length + expected["position"].get<int64_t>();
    const double* const of_row = logits.data() + row * pretrained.description().vocabulary_size;
    double sum = 0;
    for (int64_t i = 0; i < pretrained.description().vocabulary_size; ++i) sum += std::exp(of_row[i]);
    EXPECT_NEAR(std::log(sum), expected["log_sum_exp"].get<double>(), 1e-5);
    for (size_t i = 0; i < expected["first"].size(); ++i) EXPECT_NEAR(of_row[i], expected["first"][i].get<double>(), 1e-5);
  }
  EXPECT_NEAR(whole.train(tokens), reference_["loss"].get<double>(), 1e-5);
  auto found = gradients(whole, pretrained);
  double squares = 0;
  for (const auto& [name, gradient] : found)  // an expert without tokens has none there
    if (!reference_["gradients"].contains(name)) {
      EXPECT_EQ(gradient.norm(), 0) << name;
    }
  for (const auto& [name, expected] : reference_["gradients"].items()) {
    const TheirGradient& gradient = found.at(name);
    const double norm = expected["norm"].get<double>(), tolerance = 1e-4 * norm + 1e-9;
    EXPECT_NEAR(gradient.norm(), norm, tolerance) << name;
    for (const auto& [place, value] : expected["values"].items())
      EXPECT_NEAR(gradient.values.at(std::stoul(place)), value.get<double>(), tolerance) << name << " " << place;
    squares += gradient.norm() * gradient.norm();
  }
  EXPECT_NEAR(std::sqrt(squares), reference_["gradient_norm"].get<double>(), 1e-4);
}

// The reference has a loss of all tokens, Trivet of those with a target, which each sequence's last token lacks. Losses are
// added, so that of routers is the difference that it makes where all tokens have one.
TEST_P(GoldenExperts, GradientsWithTheLossOfRoutersAreThoseOfTheReference) {
  const PretrainedModel pretrained(real_file_system(), golden_folder(GetParam()));
  const auto& expected = reference_["with_z_loss"];
  model::Batch with_targets = batch();
  for (int32_t& target : with_targets.targets) target = std::max(target, 0);
  const auto trained = [&](const model::Batch& tokens, double z_loss) {
    const std::unique_ptr<model::WholeModel> whole = load(pretrained, true, z_loss);
    whole->train(tokens);
    return gradients(*whole, pretrained);
  };
  auto found = trained(batch(), 0);
  const auto with = trained(with_targets, expected["coefficient"].get<double>()), without = trained(with_targets, 0);
  for (auto& [name, gradient] : found)
    for (size_t i = 0; i < gradient.values.size(); ++i)
      gradient.values[i] += with.at(name).values.at(i) - without.at(name).values.at(i);
  for (const auto& [name, gradient] : expected["gradients"].items()) {
    const double norm = gradient["norm"].get<double>();
    EXPECT_NEAR(found.at(name).norm(), norm, 1e-4 * norm) << name;
    for (const auto& [place, value] : gradient["values"].items())
      EXPECT_NEAR(found.at(name).values.at(std::stoul(place)), value.get<double>(), 1e-4 * norm) << name << " " << place;
  }
  double squares = 0;
  for (const auto& [name, gradient] : found) squares += gradient.norm() * gradient.norm();
  EXPECT_NEAR(std::sqrt(squares), expected["gradient_norm"].get<double>(), 4e-4);
}

TEST_P(GoldenExperts, RoutersChooseTheExpertsOfTheReference) {
  const PretrainedModel pretrained(real_file_system(), golden_folder(GetParam()));
  const model::Experts& experts = pretrained.description().experts;
  const int64_t layer = reference_["moe_block"]["layer"].get<int64_t>(), hidden = pretrained.description().hidden_size;
  const Values router = elements_of(pretrained.weights(), "blocks." + std::to_string(layer) + ".mlp.router.weight");
  const auto& expected = reference_["moe_layers"][std::to_string(layer)];
  const auto x = reference_["moe_block"]["x"].get<std::vector<std::vector<double>>>();
  const auto tokens = static_cast<int64_t>(x.size());
  std::vector<double> logits;
  for (const std::vector<double>& of_token : x)
    for (int64_t e = 0; e < experts.count; ++e) {
      double sum = 0;
      for (int64_t i = 0; i < hidden; ++i)
        sum += of_token[static_cast<size_t>(i)] * static_cast<double>(router[static_cast<size_t>(e * hidden + i)]);
      logits.push_back(sum);
    }
  for (int64_t e = 0; e < experts.count; ++e)
    EXPECT_NEAR(logits[static_cast<size_t>(e)], expected["logits_of_token_0"][static_cast<size_t>(e)].get<double>(), 1e-8);
  std::vector<double> bias;
  if (experts.correction_bias)
    for (const float value : elements_of(pretrained.weights(), "blocks." + std::to_string(layer) + ".mlp." + kBias))
      bias.push_back(static_cast<double>(value));
  std::vector<int32_t> chosen(static_cast<size_t>(tokens * experts.per_token));
  std::vector<double> weights(chosen.size());
  kernels::make_cpu_kernels(1)->choose_experts(
      {.logits = {logits.data(), DType::Float64, {tokens, experts.count}},
       .bias = bias.empty() ? ConstTensorView{} : ConstTensorView{bias.data(), DType::Float64, {experts.count}},
       .chosen = {chosen.data(), DType::Int32, {tokens, experts.per_token}},
       .weights = {weights.data(), DType::Float64, {tokens, experts.per_token}},
       .rule = experts.rule});
  for (size_t token = 0; token < x.size(); ++token) {
    std::map<int32_t, double> found, wanted;  // theirs are in the order of weights
    for (size_t k = 0; k < static_cast<size_t>(experts.per_token); ++k) {
      const size_t place = token * static_cast<size_t>(experts.per_token) + k;
      found[chosen[place]] = weights[place];
      wanted[expected["experts"][token][k].get<int32_t>()] = expected["weights"][token][k].get<double>();
    }
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [expert, weight] : wanted) {
      ASSERT_TRUE(found.contains(expert)) << "token " << token << " expert " << expert;
      EXPECT_NEAR(found[expert], weight, 1e-8);
    }
  }
}

TEST_P(GoldenExperts, ImportedAndExportedTensorsHaveEqualBits) {
  support::MemoryFileSystem files;
  import_model(files, PretrainedModel(real_file_system(), golden_folder(GetParam())), "/checkpoints", real_file_system());
  EXPECT_EQ(export_model(files, "/checkpoints", {.output = "/back"}).model_type, GetParam());
  EXPECT_EQ(all_tensors(files, "/back"), all_tensors(real_file_system(), golden_folder(GetParam())));
  EXPECT_EQ(PretrainedModel(files, "/back").description().experts.rule,
            PretrainedModel(real_file_system(), golden_folder(GetParam())).description().experts.rule);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenExperts, testing::Values("mixtral", "qwen3_moe", "dots1", "deepseek_v3"),
                         [](const auto& type) { return std::string(type.param); });

class GoldenBiases : public GoldenExperts {};

TEST_P(GoldenBiases, AStepMovesBiasesAsTheReferenceDoes) {
  const PretrainedModel pretrained(real_file_system(), golden_folder(GetParam()));
  for (const std::string layer : {"1", "2"}) {
    const auto& expected = reference_["bias_update"][layer];
    auto counts = reference_["moe_layers"][layer]["counts"].get<std::vector<int64_t>>();
    Values bias = elements_of(pretrained.weights(), "blocks." + layer + ".mlp." + kBias);
    const auto experts = static_cast<int64_t>(bias.size());
    for (size_t e = 0; e < bias.size(); ++e) EXPECT_NEAR(bias[e], expected["before"][e].get<double>(), 1e-12);
    kernels::make_cpu_kernels(1)->balance_experts(
        {.bias = {bias.data(), DType::Float32, {experts}}, .counts = {counts.data(), DType::Int64, {experts}}, .rate = 0.001});
    // A float near 0.2 is within 2^-27 of its value.
    for (size_t e = 0; e < bias.size(); ++e) EXPECT_NEAR(bias[e], expected["megatron"][e].get<double>(), 0x1p-26);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenBiases, testing::Values("dots1", "deepseek_v3"),
                         [](const auto& type) { return std::string(type.param); });

class GoldenQwen3Moe : public GoldenExperts {};

TEST_P(GoldenQwen3Moe, WeightsThatAreNotDividedByTheirSumAreThoseOfTheReference) {
  const PretrainedModel pretrained(real_file_system(), golden_folder(GetParam()));
  const std::unique_ptr<model::WholeModel> loaded = load(pretrained, false);
  model::WholeModel& whole = *loaded;
  const auto& expected = reference_["norm_topk_prob_false"];
  EXPECT_NEAR(whole.train(batch()), expected["loss"].get<double>(), 1e-5);
  double squares = 0;
  for (const auto& [name, gradient] : gradients(whole, pretrained)) squares += gradient.norm() * gradient.norm();
  EXPECT_NEAR(std::sqrt(squares), expected["gradient_norm"].get<double>(), 4e-4);
}

TEST_P(GoldenQwen3Moe, FusedExpertsAreTheSameModel) {
  support::MemoryFileSystem files;
  const std::string folder = golden_folder(GetParam());
  write_model(files, "/fused", data::file_content(folder + "/config.json"), data::file_content(folder + "/fused.safetensors"));
  const PretrainedModel single(real_file_system(), folder), fused(files, "/fused");
  for (const auto& [name, rows] : single.architecture().weights(single.description()))
    EXPECT_EQ(elements_of(fused.weights(), name), elements_of(single.weights(), name)) << name;
  import_model(files, fused, "/checkpoints");
  export_model(files, "/checkpoints", {.output = "/back"});
  EXPECT_EQ(all_tensors(files, "/back"), all_tensors(real_file_system(), folder)) << "written one by one, as transformers does";
}

INSTANTIATE_TEST_SUITE_P(Architecture, GoldenQwen3Moe, testing::Values("qwen3_moe"), [](const auto&) { return "Qwen3Moe"; });

// ---- Small models.

class PretrainedExperts : public testing::Test {
 protected:
  using Tensors = std::map<std::string, Shape>;
  static DescribedModel describe(const std::string& config, const std::string& member) {
    return describe_model(config.substr(0, config.rfind('}')) + ", " + member + "}", "c.json");
  }
  static model::Experts experts(const std::string& config, const std::string& member) {
    return describe(config, member).config.model.experts;
  }
  static void expect_refused(const std::string& config, const std::string& member, const std::string& message) {
    EXPECT_THAT([&] { describe(config, member); }, ThrowsMessage<ConfigError>(HasSubstr("c.json: " + message)));
  }
  PretrainedModel open(const std::string& config, const Tensors& tensors) {
    write_model(files, "/model", config, file_of(tensors));
    return {files, "/model"};
  }
  template <typename Expected>
  void expect_refused(const std::string& config, const Tensors& tensors, const Expected& message) {
    EXPECT_THAT([&] { open(config, tensors); }, ThrowsMessage<CheckpointError>(message));
  }

  support::MemoryFileSystem files;
};

const std::string kSparseBlock = "model.layers.0.block_sparse_moe.", kMlpBlock = "model.layers.0.mlp.";

TEST_F(PretrainedExperts, JoinsTheExpertsOfMixtral) {
  const PretrainedModel model = open(small_mixtral(), small_mixtral_tensors());
  const ModelFiles theirs(files, "/model");
  Values gate_up, down;
  for (const std::string expert : {"experts.0.", "experts.1."}) {
    for (const std::string part : {"w1.weight", "w3.weight"})
      for (const float value : elements_of(theirs, kSparseBlock + expert + part)) gate_up.push_back(value);
    for (const float value : elements_of(theirs, kSparseBlock + expert + "w2.weight")) down.push_back(value);
  }
  EXPECT_EQ(elements_of(model.weights(), "blocks.0.mlp.experts.gate_up.weight"), gate_up);
  EXPECT_EQ(elements_of(model.weights(), "blocks.0.mlp.experts.down.weight"), down);
  EXPECT_EQ(elements_of(model.weights(), "blocks.0.mlp.router.weight"), elements_of(theirs, kSparseBlock + "gate.weight"));
  EXPECT_EQ(model.weights().origin("blocks.0.mlp.experts.gate_up.weight", 20),
            "tensor \"" + kSparseBlock + "experts.1.w3.weight\" of /model/model.safetensors");
}

TEST_F(PretrainedExperts, AreReadFusedAsTransformersHasThemInMemory) {
  const PretrainedModel qwen = open(small_qwen3_moe(), small_fused_experts());
  const ModelFiles theirs(files, "/model");
  EXPECT_EQ(elements_of(qwen.weights(), "blocks.0.mlp.experts.gate_up.weight"),
            elements_of(theirs, kMlpBlock + "experts.gate_up_proj"));
  // A rank that owns the second half of every expert's rows of `down`.
  Values half(3 * 4 * 5);
  std::vector<checkpoint::Piece> pieces;
  for (int64_t expert = 0; expert < 3; ++expert) {
    checkpoint::Piece piece;
    piece.name = "blocks.0.mlp.experts.down.weight";
    piece.shape = {24, 5};
    piece.box_start = {expert * 8 + 4, 0};
    piece.box_shape = {4, 5};
    piece.count = 20;
    piece.data = {half.data() + expert * 20, DType::Float32, {20}};
    pieces.push_back(piece);
  }
  qwen.weights().read(pieces);
  const Values down = elements_of(theirs, kMlpBlock + "experts.down_proj");
  for (size_t i = 0; i < half.size(); ++i) EXPECT_EQ(half[i], down[i / 20 * 40 + 20 + i % 20]);
  // Mixtral has other names there than in its files.
  Tensors mixtral = without_mlp(small_llama_tensors());
  mixtral[kMlpBlock + "gate.weight"] = {2, 8};
  mixtral[kMlpBlock + "experts.gate_up_proj"] = {2, 12, 8};
  mixtral[kMlpBlock + "experts.down_proj"] = {2, 8, 6};
  EXPECT_EQ(open(small_mixtral(), mixtral).weights().find("blocks.0.mlp.experts.down.weight")->shape, (Shape{16, 6}));
  Tensors without_head;  // a file of the model without its head
  for (const auto& [name, shape] : small_fused_experts())
    without_head[name.starts_with("model.") ? name.substr(6) : name] = shape;
  EXPECT_EQ(open(small_qwen3_moe(), without_head).weights().find("blocks.0.mlp.router.weight")->shape, (Shape{3, 8}));
}

TEST_F(PretrainedExperts, ATensorThatDoesNotFitIsNamed) {
  const std::string place = "/model: tensor \"" + kSparseBlock;
  Tensors tensors = small_mixtral_tensors();
  tensors.erase(kSparseBlock + "experts.1.w3.weight");
  expect_refused(small_mixtral(), tensors,
                 place +
                     "experts.1.w3.weight\", needed for blocks.0.mlp.experts.gate_up.weight, is absent; is this another "
                     "model?");
  tensors[kSparseBlock + "experts.1.w3.weight"] = {7, 8};
  expect_refused(small_mixtral(), tensors,
                 place +
                     "experts.1.w3.weight\", needed for blocks.0.mlp.experts.gate_up.weight, has 7 rows, of which row 6 and "
                     "later ones are not used; is this another model?");
  tensors[kSparseBlock + "experts.1.w3.weight"] = {5, 8};
  expect_refused(small_mixtral(), tensors, HasSubstr("has 5 rows, but 0 to 5 are needed"));
  tensors[kSparseBlock + "experts.1.w3.weight"] = {6, 9};
  expect_refused(small_mixtral(), tensors, HasSubstr("is float32 [6, 9], which does not continue"));
  tensors = small_mixtral_tensors();
  for (const char* part : {"w1", "w2", "w3"}) tensors[kSparseBlock + "experts.2." + part + ".weight"] = {6, 8};
  expect_refused(small_mixtral(), tensors,
                 place +
                     "experts.2.w1.weight\" is no part of a model of the type \"mixtral\" with "
                     "this config.json; is it of another model?");
  tensors = small_mixtral_tensors();
  tensors[kSparseBlock + "gate.weight"] = {3, 8};
  expect_refused(small_mixtral(), tensors, HasSubstr("gate.weight\" of /model/model.safetensors is stored as float32 [3, 8]"));
}

TEST_F(PretrainedExperts, AFusedTensorThatDoesNotFitIsNamed) {
  Tensors tensors = small_fused_experts();
  tensors[kMlpBlock + "experts.gate_up_proj"] = {3, 8, 10};
  expect_refused(small_qwen3_moe(), tensors,
                 "tensor \"" + kMlpBlock +
                     "experts.gate_up_proj\" of /model/model.safetensors has the shape [3, 8, 10], but 3 "
                     "experts of this config.json have [3, 10, 8]");
  tensors[kMlpBlock + "experts.gate_up_proj"] = {30, 8};
  expect_refused(small_qwen3_moe(), tensors, HasSubstr("has the shape [30, 8], but 3 experts"));
  tensors.erase(kMlpBlock + "experts.gate_up_proj");
  expect_refused(small_qwen3_moe(), tensors, HasSubstr("tensor \"" + kMlpBlock + "experts.gate_up_proj\", needed for"));
  tensors = small_fused_experts();
  tensors[kMlpBlock + "experts.1.up_proj.weight"] = {5, 8};
  expect_refused(small_qwen3_moe(), tensors,
                 "tensor \"" + kMlpBlock +
                     "experts.1.up_proj.weight\" of /model/model.safetensors is an expert by itself, but \"" + kMlpBlock +
                     "experts.down_proj\" holds all experts of a layer; use files in which all layers have one of both "
                     "forms");
}

TEST_F(PretrainedExperts, MoreExpertsThanTensorsAreRefusedBeforeTheirNamesAreMade) {
  std::string many = small_mixtral();
  many.replace(many.find("\"num_local_experts\": 2"), 22, "\"num_local_experts\": 16384");
  expect_refused(many, small_mixtral_tensors(),
                 "/model/config.json: describes 1 layers of 16384 experts, but the files hold only 16 tensors");
}

TEST_F(PretrainedExperts, TheirNumberHasTheKeyOfEitherVersionOfTransformers) {
  const std::string mixtral = small_llama_as("mixtral"), qwen = small_llama_as("qwen3_moe");
  EXPECT_EQ(experts(mixtral, R"("num_experts": 4)").count, 4);
  EXPECT_EQ(experts(mixtral, R"("num_local_experts": 4)").count, 4);
  EXPECT_EQ(experts(qwen, R"("num_local_experts": 16, "num_experts": 16)").count, 16);
  EXPECT_EQ(experts(mixtral, R"("use_cache": true)").count, 8) << "the classes' numbers";
  EXPECT_EQ(experts(qwen, R"("use_cache": true)").count, 128);
  expect_refused(qwen, R"("num_local_experts": 16, "num_experts": 8)",
                 "num_local_experts: 16 is not accepted; num_experts is 8: give both the same value, or remove one");
  expect_refused(qwen, R"("num_experts": 0)", "num_experts: 0 is not accepted; use at least 1");
  expect_refused(mixtral, R"("num_local_experts": 2, "num_experts_per_tok": 3)", "describes a model that is not accepted: ");
}

TEST_F(PretrainedExperts, ReadsTheKeysOfMixtral) {
  const std::string mixtral = small_mixtral();
  const model::Description d =
      describe(mixtral, R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})").config.model;
  EXPECT_TRUE(d.experts.rule.normalize && !d.qk_norm);
  EXPECT_EQ(d.experts.feed_forward_size, 6);
  EXPECT_EQ(d.rotary_base, 5e5);
  EXPECT_EQ(d.attention_window, 0);
  EXPECT_EQ(describe(mixtral, R"("use_cache": true)").config.model.rotary_base, 1e6);
  EXPECT_EQ(describe(mixtral, R"("sliding_window": 3)").config.model.attention_window, 3);
  EXPECT_EQ(describe(mixtral, R"("sliding_window": null)").config.model.attention_window, 0);
  expect_refused(mixtral, R"("sliding_window": 0)", "sliding_window: 0 is not accepted");
  EXPECT_THAT(describe(mixtral, R"("router_jitter_noise": 0.0, "router_aux_loss_coef": 0.0)").notes, IsEmpty());
  EXPECT_THAT(describe(mixtral, R"("router_jitter_noise": 0.01)").notes,
              ElementsAre("router_jitter_noise 0.01 was ignored: transformers multiplies the inputs of experts and routers by "
                          "random factors in training, Trivet does not"));
  EXPECT_THAT(describe(mixtral, R"("output_router_logits": true)").notes,
              ElementsAre("router_aux_loss_coef 0.001 was ignored: transformers trains with that loss, as output_router_logits "
                          "is true, but Trivet's is another one; for such a loss, set model.experts.balance_loss"));
}

TEST_F(PretrainedExperts, ReadsTheKeysOfQwen3) {
  const std::string qwen = small_qwen3_moe();
  EXPECT_EQ(experts(qwen, R"("use_cache": true)").feed_forward_size, 5);
  EXPECT_TRUE(experts(qwen, R"("use_cache": true)").rule.normalize);
  EXPECT_FALSE(experts(small_llama_as("qwen3_moe"), R"("use_cache": true)").rule.normalize) << "the class's default";
  std::string deep = qwen;
  deep.replace(deep.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 6");
  EXPECT_THAT(experts(deep, R"("mlp_only_layers": [4, 1, 9])").dense_blocks, ElementsAre(1, 4));
  EXPECT_THAT(experts(deep, R"("decoder_sparse_step": 3)").dense_blocks, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(experts(deep, R"("decoder_sparse_step": 2, "mlp_only_layers": [5])").dense_blocks, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(experts(deep, R"("mlp_only_layers": null)").dense_blocks, IsEmpty());
  expect_refused(deep, R"("decoder_sparse_step": 7)",
                 "decoder_sparse_step: 7 is not accepted; at least one layer must have experts; a model without any is of the "
                 "type \"qwen3\"");
  expect_refused(qwen, R"("mlp_only_layers": [0])", "mlp_only_layers: [0] is not accepted; at least one layer");
  expect_refused(qwen, R"("mlp_only_layers": [-1])", "mlp_only_layers: [-1] is not accepted; use a list of integers from 0");
  expect_refused(qwen, R"("attention_bias": true)", "attention_bias: true is not accepted; use false");
  EXPECT_EQ(describe(deep, R"("use_sliding_window": true, "sliding_window": 3, "max_window_layers": 2)")
                .config.model.attention_window,
            3)
      << "its class does not read max_window_layers";
  EXPECT_EQ(describe(deep, R"("use_sliding_window": false, "sliding_window": 3)").config.model.attention_window, 0);
}

TEST_F(PretrainedExperts, OfGptOssAreTransposedAndTakeTurns) {
  const PretrainedModel model = open(small_later("gpt_oss"), small_gpt_oss_tensors());
  const ModelFiles theirs(files, "/model");
  const Values gate_up = elements_of(theirs, kMlpBlock + "experts.gate_up_proj"),
               down = elements_of(theirs, kMlpBlock + "experts.down_proj"),
               bias = elements_of(theirs, kMlpBlock + "experts.gate_up_proj_bias");
  const Values ours = elements_of(model.weights(), "blocks.0.mlp.experts.gate_up.weight"),
               our_down = elements_of(model.weights(), "blocks.0.mlp.experts.down.weight"),
               our_bias = elements_of(model.weights(), "blocks.0.mlp.experts.gate_up.bias");
  for (size_t expert = 0; expert < 3; ++expert)
    for (size_t row = 0; row < 12; ++row) {
      const size_t column = row < 6 ? 2 * row : 2 * (row - 6) + 1;  // gate and up take turns there
      EXPECT_EQ(our_bias[expert * 12 + row], bias[expert * 12 + column]);
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(ours[(expert * 12 + row) * 8 + i], gate_up[(expert * 8 + i) * 12 + column]);
    }
  for (size_t e = 0; e < our_down.size(); ++e) EXPECT_EQ(our_down[e], down[e / 48 * 48 + e % 6 * 8 + e / 6 % 8]);
  // The last two columns of rows 1 to 30, from the third element on: several experts, none of them whole.
  Values part(57);
  checkpoint::Piece piece;
  piece.name = "blocks.0.mlp.experts.gate_up.weight";
  piece.shape = {36, 8};
  piece.box_start = {1, 6};
  piece.box_shape = {30, 2};
  piece.first = 3;
  piece.count = 57;
  piece.data = {part.data(), DType::Float32, {57}};
  model.weights().read({&piece, 1});
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], ours[(1 + (3 + i) / 2) * 8 + 6 + (3 + i) % 2]) << i;
  Tensors tensors = small_gpt_oss_tensors();
  tensors[kMlpBlock + "experts.gate_up_proj"] = {3, 12, 8};
  expect_refused(small_later("gpt_oss"), tensors,
                 HasSubstr("has the shape [3, 12, 8], but 3 experts of this config.json have [3, 8, 12]"));
}

// Heads of four rotary and two plain elements, which come first there.
TEST_F(PretrainedExperts, AdaptersOfLatentsHaveTheOrderOfTheirMatrix) {
  const std::string config = small_later("deepseek_v3");
  model::Description d = describe(config, R"("use_cache": true)").config.model;
  d.lora = {.rank = 2, .alpha = 4, .targets = {"q_b_proj", "kv_b_proj"}};
  const auto tensors = peft_adapters(deepseek_v3(), d, "").tensors;
  const std::string attention = "base_model.model.model.layers.0.self_attn.";
  std::vector<std::pair<int64_t, int64_t>> rows;  // first, count
  for (const checkpoint::TheirRows& of : tensors.at(attention + "q_b_proj.lora_B.weight")) {
    EXPECT_EQ(of.tensor, "blocks.0.attention.query_up.lora_b");
    rows.emplace_back(of.first, of.count);
  }
  using testing::Pair;
  EXPECT_THAT(rows, ElementsAre(Pair(4, 2), Pair(0, 1), Pair(2, 1), Pair(1, 1), Pair(3, 1), Pair(10, 2), Pair(6, 1), Pair(8, 1),
                                Pair(7, 1), Pair(9, 1)));
  EXPECT_EQ(tensors.at(attention + "kv_b_proj.lora_B.weight").size(), 1U);
  EXPECT_EQ(tensors.size(), 4U);
}

// As modules, they would be adapters of experts for PEFT 0.21.
TEST_F(PretrainedExperts, AdaptersOfMlpsBesideExpertsAreThoseOfParameters) {
  model::Description d = describe(small_later("deepseek_v3"), R"("use_cache": true)").config.model;
  d.layers = 3;
  d.experts.dense_blocks = {1, 2};
  d.lora = {.rank = 2, .alpha = 4, .targets = {"o_proj", "layers.0.mlp.*", "layers.1.mlp.*", "layers.2.mlp.up_proj"}};
  const PeftAdapters adapters = peft_adapters(deepseek_v3(), d, "");
  EXPECT_EQ(adapters.tensors.size(), 2U * (3 + 2 + 3 + 3 + 1));
  EXPECT_EQ(adapters.tensors.at("base_model.model.model.layers.1.mlp.up_proj.lora_B.weight")[0].tensor,
            "blocks.1.mlp.gate_up.up.lora_b");
  const auto config = nlohmann::json::parse(adapters.config);
  EXPECT_EQ(config.at("target_modules"), nlohmann::json({"self_attn.o_proj"}));
  EXPECT_EQ(config.at("target_parameters"),
            nlohmann::json({"model.layers.1.mlp.down_proj.weight", "mlp.experts.down_proj", "mlp.experts.gate_up_proj",
                            "model.layers.1.mlp.gate_proj.weight", "mlp.shared_experts.down_proj.weight",
                            "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight", "mlp.up_proj.weight"}));
}

}  // namespace
}  // namespace trivet::hugging_face
