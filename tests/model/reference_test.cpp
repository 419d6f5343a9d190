// Compares complete models with numbers that PyTorch and numpy computed in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/model/read_safetensors.h"
#include "tests/model/whole_model.h"

namespace trivet::model {
namespace {

using Tensors = std::map<std::string, GoldenTensor>;

// float64: the kernels take a norm's epsilon as float32, and 1e-5 rounded to float32 is off by 2.5e-13, which is 1e-10 of
// activations whose variance is that of GPT-2's initial embedding. The rest is a few hundred roundings of 1e-16.
// float32: sums of up to 200 terms of order 1, rounded at 6e-8 each, through a handful of layers; errors partly cancel.
double tolerance(DType dtype) { return dtype == DType::Float64 ? 1e-10 : 2e-5; }

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

// The tolerance is relative to the largest of the expected values.
void expect_near_enough(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double scale = largest(expected);
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance * scale) << what << "[" << i << "]";
}

Batch golden_batch(const Tensors& golden) {
  auto numbers = [&](const std::string& name) {
    const std::vector<double>& values = golden.at(name).values;
    return std::vector<int32_t>(values.begin(), values.end());
  };
  const Shape shape = golden.at("tokens").shape;
  return {shape[0], shape[1], numbers("tokens"), numbers("targets")};
}

class LlamaReference : public testing::TestWithParam<DType> {};

TEST_P(LlamaReference, LogitsLossAndAllGradientsAgree) {
  const Tensors golden = read_safetensors(TRIVET_SOURCE_DIR "/tests/golden/llama_tiny.safetensors");
  WholeModel model({.type = Type::Llama,
                    .layers = 2,
                    .hidden_size = 24,
                    .heads = 4,
                    .key_value_heads = 2,
                    .feed_forward_size = 40,
                    .sequence_length = 9,
                    .vocabulary_size = 61,
                    .tied_embedding = false},
                   GetParam(), Device::Cpu);
  for (const std::string& name : model.parameter_names()) set_values(model.weight(name), golden.at("weight." + name).values);
  const Batch batch = golden_batch(golden);
  expect_near_enough(model.logits(batch), golden.at("logits").values, tolerance(GetParam()), "logits");
  expect_near_enough({model.train(batch)}, golden.at("loss").values, tolerance(GetParam()), "loss");
  for (const std::string& name : model.parameter_names())
    expect_near_enough(values_of(model.gradient(name)), golden.at("gradient." + name).values, tolerance(GetParam()), name);
}

INSTANTIATE_TEST_SUITE_P(Precisions, LlamaReference, testing::Values(DType::Float64, DType::Float32),
                         [](const auto& which) { return std::string(name_of(which.param)); });

// ---- GPT-2 in the layout of Hugging Face: projections are stored [in, out].

const std::string kGpt2Folder = TRIVET_SOURCE_DIR "/../shared/data/tiny-gpt2-random";

struct Gpt2Name {
  std::string name;
  bool transposed = false;
};

std::map<std::string, Gpt2Name> gpt2_names(int64_t layers) {
  std::map<std::string, Gpt2Name> names{{"embedding.tokens.weight", {"transformer.wte.weight"}},
                                        {"embedding.positions.weight", {"transformer.wpe.weight"}},
                                        {"head.norm.gain", {"transformer.ln_f.weight"}},
                                        {"head.norm.bias", {"transformer.ln_f.bias"}}};
  const std::map<std::string, std::string> projections{
      {"attention.qkv", "attn.c_attn"}, {"attention.out", "attn.c_proj"}, {"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string ours = "blocks." + std::to_string(i) + ".", theirs = "transformer.h." + std::to_string(i) + ".";
    for (const std::string number : {"1", "2"}) {
      names[ours + "norm" + number + ".gain"] = {theirs + "ln_" + number + ".weight"};
      names[ours + "norm" + number + ".bias"] = {theirs + "ln_" + number + ".bias"};
    }
    for (const auto& [our, their] : projections) {
      names[ours + our + ".weight"] = {theirs + their + ".weight", true};
      names[ours + our + ".bias"] = {theirs + their + ".bias"};
    }
  }
  return names;
}

std::vector<double> transposed(const GoldenTensor& tensor) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<double> result;
  for (int64_t col = 0; col < cols; ++col)
    for (int64_t row = 0; row < rows; ++row) result.push_back(tensor.values[row * cols + col]);
  return result;
}

class Gpt2Reference : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGpt2Folder + "/reference.json")) GTEST_SKIP() << kGpt2Folder << " is absent";
    reference_ = nlohmann::json::parse(std::ifstream(kGpt2Folder + "/reference.json"));
    const Tensors golden = read_safetensors(kGpt2Folder + "/model.safetensors");
    for (const auto& [ours, theirs] : names_) {
      const GoldenTensor& tensor = golden.at(theirs.name);
      set_values(model_.weight(ours), theirs.transposed ? transposed(tensor) : tensor.values);
    }
  }
  // Every token but the first is the target of the one before it; the last has none.
  Batch batch() const {
    const std::vector<int32_t> tokens = reference_["token_ids"];
    std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
    targets.push_back(-1);
    return {1, static_cast<int64_t>(tokens.size()), tokens, targets};
  }

  const std::map<std::string, Gpt2Name> names_ = gpt2_names(3);
  nlohmann::json reference_;
  WholeModel model_{
      {.layers = 3, .hidden_size = 48, .heads = 4, .sequence_length = 64, .vocabulary_size = 320}, GetParam(), Device::Cpu};
};

TEST_P(Gpt2Reference, LogitsAndLossAgree) {
  const std::vector<double> logits = model_.logits(batch());
  const std::vector<double> first(logits.begin(), logits.begin() + 320), last(logits.end() - 320, logits.end());
  expect_near_enough(first, reference_["logits_first_position_float64"], tolerance(GetParam()), "first position");
  expect_near_enough(last, reference_["logits_last_position_float64"], tolerance(GetParam()), "last position");
  expect_near_enough({model_.loss(batch())}, {reference_["mean_next_token_loss_float64"]}, tolerance(GetParam()), "loss");
}

TEST_P(Gpt2Reference, GradientsAgree) {
  model_.train(batch());
  std::map<std::string, std::string> ours_of;
  double squares = 0, steepest = 0;
  for (const auto& [ours, theirs] : names_) {
    ours_of[theirs.name] = ours;
    for (double gradient : values_of(model_.gradient(ours))) squares += gradient * gradient;
    steepest = std::max(steepest, largest(values_of(model_.gradient(ours))));
  }
  expect_near_enough({std::sqrt(squares)}, {reference_["grad_global_l2_norm_float64"]}, tolerance(GetParam()),
                     "norm of the gradient");
  for (const auto& entry : reference_["grads_autograd_float64"]) {
    const std::string ours = ours_of.at(entry["tensor"]);
    const std::vector<double> gradient = values_of(model_.gradient(ours));
    const std::vector<int64_t> index = entry["index"];
    const int64_t columns = model_.gradient(ours).shape.cols();
    int64_t element = index[0];
    if (index.size() == 2) element = names_.at(ours).transposed ? index[1] * columns + index[0] : index[0] * columns + index[1];
    EXPECT_NEAR(gradient[element], entry["grad"].get<double>(), tolerance(GetParam()) * steepest) << ours;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Gpt2Reference, testing::Values(DType::Float64, DType::Float32),
                         [](const auto& which) { return std::string(name_of(which.param)); });

}  // namespace
}  // namespace trivet::model
