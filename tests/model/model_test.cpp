#include "model/count_flops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/error.h"
#include "tests/model/whole_model.h"

namespace trivet::model {
namespace {

Description tiny(Type type, double dropout = 0) {
  return {.type = type,
          .layers = 2,
          .hidden_size = 24,
          .heads = 4,
          .key_value_heads = type == Type::Llama ? 2 : 0,
          .sequence_length = 12,
          .vocabulary_size = 31,
          .dropout = dropout,
          .tied_embedding = type == Type::Gpt};
}

class BothModels : public testing::TestWithParam<Type> {};

TEST_P(BothModels, TwentyStepsOfPlainSgdLowerTheLoss) {
  WholeModel model(tiny(GetParam()), DType::Float32, Device::Cpu);
  const Batch batch = random_batch(3, 12, 31, 1);
  const double before = model.loss(batch);
  EXPECT_NEAR(before, std::log(31.0), 0.05);  // small initial values: nearly uniform
  for (int step = 0; step < 20; ++step) {
    model.train(batch);
    model.sgd_step(1.0);
  }
  EXPECT_LT(model.loss(batch), before - 0.5);
}

TEST_P(BothModels, EvaluationGivesTheTrainingLossToTheLastBitWithoutDropout) {
  WholeModel model(tiny(GetParam()), DType::Float32, Device::Cpu);
  const Batch batch = random_batch(3, 12, 31, 1);
  const double trained = model.train(batch);
  model.training = false;
  EXPECT_EQ(model.loss(batch), trained);
}

TEST_P(BothModels, DropoutActsInTrainingOnlyAndDependsOnTheStep) {
  WholeModel model(tiny(GetParam(), 0.3), DType::Float32, Device::Cpu);
  WholeModel without(tiny(GetParam()), DType::Float32, Device::Cpu);
  const Batch batch = random_batch(3, 12, 31, 1);
  const double first = model.train(batch);
  EXPECT_EQ(model.train(batch), first);
  model.step = 1;
  EXPECT_NE(model.train(batch), first);
  model.training = false;
  EXPECT_EQ(model.loss(batch), without.loss(batch));
}

TEST_P(BothModels, DropoutOfASampleDependsOnItsNumberAndNotOnItsNeighbours) {
  WholeModel model(tiny(GetParam(), 0.3), DType::Float64, Device::Cpu);
  const Batch batch = random_batch(2, 12, 31, 1);
  const Batch first{
      1, 12, {batch.tokens.begin(), batch.tokens.begin() + 12}, {batch.targets.begin(), batch.targets.begin() + 12}};
  const Batch second{1, 12, {batch.tokens.begin() + 12, batch.tokens.end()}, {batch.targets.begin() + 12, batch.targets.end()}};
  model.first_sample = 5;
  const double together = model.loss(batch), alone_first = model.loss(first);
  model.first_sample = 6;
  EXPECT_NEAR(together, (alone_first + model.loss(second)) / 2, 1e-13);
}

// In float64 the two differ only by the order of sums. Frameworks that tell documents apart by positions alone leak.
TEST_P(BothModels, DocumentsOfASampleTrainAsIfEachWereAlone) {
  constexpr int64_t kLength = 12;
  Batch packed = random_batch(2, kLength, 31, 1);
  std::vector<Batch> alone;
  const std::vector<std::vector<int64_t>> documents{{5, 1, 4}, {12}};  // the first row ends with padding
  for (int64_t row = 0; row < 2; ++row) {
    int64_t begin = 0;
    for (const int64_t length : documents[row]) {
      const auto part = [&](const std::vector<int32_t>& all) {
        return std::vector<int32_t>(all.begin() + row * kLength + begin, all.begin() + row * kLength + begin + length);
      };
      alone.push_back({1, length, part(packed.tokens), part(packed.targets)});
      for (int64_t i = 0; i < length; ++i) {
        packed.documents.push_back(static_cast<int32_t>(begin));
        packed.positions.push_back(static_cast<int32_t>(i));
      }
      begin += length;
    }
    for (; begin < kLength; ++begin) {
      packed.targets[row * kLength + begin] = -1;
      packed.documents.push_back(kLength);
      packed.positions.push_back(0);
    }
  }
  WholeModel model(tiny(GetParam()), DType::Float64, Device::Cpu);
  std::map<std::string, std::vector<double>> sums;
  double loss = 0, targets = 0;
  for (const Batch& document : alone) {
    const auto count = static_cast<double>(document.length);
    loss += count * model.train(document);
    targets += count;
    for (const std::string& name : model.parameter_names()) {
      const std::vector<double> gradient = values_of(model.gradient(name));
      sums[name].resize(gradient.size());
      for (size_t i = 0; i < gradient.size(); ++i) sums[name][i] += count * gradient[i];
    }
  }
  EXPECT_NEAR(model.train(packed), loss / targets, 1e-13);
  for (const std::string& name : model.parameter_names()) {
    const std::vector<double> gradient = values_of(model.gradient(name));
    for (size_t i = 0; i < gradient.size(); ++i) ASSERT_NEAR(targets * gradient[i], sums[name][i], 1e-12) << name << " " << i;
  }
}

// Pairs of answers in rows of kPairLength tokens; a quarter of their targets does not count.
constexpr int64_t kPairLength = 12;

void put_answer(Batch& batch, int64_t row, int64_t first, int64_t length, uint64_t answer) {
  batch.documents.resize(batch.targets.size(), kPairLength);
  batch.positions.resize(batch.targets.size());
  for (int64_t t = 0; t < length; ++t) {
    const auto at = static_cast<size_t>(row * kPairLength + first + t);
    const PhiloxBlock draw = philox(3, answer, static_cast<uint64_t>(t));
    batch.tokens[at] = static_cast<int32_t>(draw[0] % 31);
    batch.targets[at] = t > 0 && draw[2] % 4 == 0 ? -1 : static_cast<int32_t>(draw[1] % 31);
    batch.documents[at] = static_cast<int32_t>(first);
    batch.positions[at] = static_cast<int32_t>(t);
  }
}

Batch padded_rows(int64_t rows) {
  const auto places = static_cast<size_t>(rows * kPairLength);
  return {rows, kPairLength, std::vector<int32_t>(places), std::vector<int32_t>(places, -1)};
}

// The packed pairs are (5, 3) and (4, 7) in a sample, and (12, 1) in another. In float64 the two differ by the order of sums.
TEST_P(BothModels, PairsOfDocumentsTrainAsIfEachHadRowsOfItsOwn) {
  Description description = tiny(GetParam());
  description.objective = Objective::Dpo;
  description.isolated_documents = true;
  WholeModel model(description, DType::Float64, Device::Cpu);
  Batch packed = padded_rows(4);
  packed.reference.resize(packed.targets.size());
  std::map<std::string, std::vector<double>> sums;
  double losses = 0;
  const auto counting = [](const Batch& batch) {
    return static_cast<double>(std::ranges::count_if(batch.targets, [](int32_t target) { return target >= 0; }));
  };
  uint64_t answer = 0;
  for (const auto& [row, firsts, lengths] :
       {std::tuple<int64_t, std::array<int64_t, 2>, std::array<int64_t, 2>>{0, {0, 0}, {5, 3}},
        {0, {5, 3}, {4, 7}},
        {2, {0, 0}, {12, 1}}}) {
    Batch alone = padded_rows(2);
    for (const int64_t of_pair : {0, 1}) {
      put_answer(packed, row + of_pair, firsts[of_pair], lengths[of_pair], answer);
      put_answer(alone, of_pair, 0, lengths[of_pair], answer);
      alone.reference.push_back(-3.0 * static_cast<double>(answer++));
      packed.reference[(row + of_pair) * kPairLength + firsts[of_pair]] = alone.reference.back();
    }
    alone.documents.clear();
    losses += model.train(alone);
    for (const std::string& name : model.parameter_names()) {
      const std::vector<double> gradient = values_of(model.gradient(name));
      sums[name].resize(gradient.size());
      for (size_t i = 0; i < gradient.size(); ++i) sums[name][i] += counting(alone) * gradient[i];
    }
  }
  for (const bool fused : {true, false}) {
    EXPECT_NEAR(3 * model.train(packed, fused), losses, 1e-12);
    for (const std::string& name : model.parameter_names()) {
      const std::vector<double> gradient = values_of(model.gradient(name));
      for (size_t i = 0; i < gradient.size(); ++i)
        ASSERT_NEAR(counting(packed) * gradient[i], sums[name][i], 1e-12) << name << " " << i;
    }
  }
}

TEST_P(BothModels, GradientsMayBeFloat32WhileWeightsAreBFloat16AndRoundToTheSame) {
  WholeModel narrow(tiny(GetParam(), 0.1), DType::BFloat16, Device::Cpu);
  WholeModel wide(tiny(GetParam(), 0.1), DType::BFloat16, Device::Cpu, DType::Float32);
  const Batch batch = random_batch(3, 12, 31, 1);
  EXPECT_EQ(narrow.train(batch), wide.train(batch));
  for (const std::string& name : narrow.parameter_names()) {
    if (GetParam() == Type::Gpt && name == "embedding.tokens.weight") continue;  // tied: two contributions, each rounded
    std::vector<double> rounded = values_of(wide.gradient(name));
    for (double& value : rounded) value = static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(value))));
    EXPECT_EQ(values_of(narrow.gradient(name)), rounded) << name;
  }
}

TEST_P(BothModels, FusedAndSeparateBackwardGiveTheSameBits) {
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    WholeModel fused(tiny(GetParam(), 0.1), dtype, Device::Cpu), separate(tiny(GetParam(), 0.1), dtype, Device::Cpu);
    const Batch batch = random_batch(3, 12, 31, 1);
    EXPECT_EQ(fused.train(batch, true), separate.train(batch, false));
    for (const std::string& name : fused.parameter_names())
      EXPECT_EQ(values_of(fused.gradient(name)), values_of(separate.gradient(name))) << name;
    EXPECT_LT(fused.arena().peak_bytes(), separate.arena().peak_bytes());
  }
}

TEST_P(BothModels, RecomputingAttentionChangesNoBitAndNeedsLessMemory) {
  for (bool fused : {true, false}) {
    for (DType dtype : {DType::Float32, DType::BFloat16}) {
      WholeModel kept(tiny(GetParam(), 0.1), dtype, Device::Cpu), made_again(tiny(GetParam(), 0.1), dtype, Device::Cpu);
      made_again.recompute_attention = true;
      const Batch batch = random_batch(3, 12, 31, 1);
      EXPECT_EQ(kept.train(batch, fused), made_again.train(batch, fused));
      for (const std::string& name : kept.parameter_names())
        EXPECT_EQ(values_of(kept.gradient(name)), values_of(made_again.gradient(name))) << name;
      EXPECT_LT(made_again.arena().peak_bytes(), kept.arena().peak_bytes());
      EXPECT_EQ(made_again.arena().used_bytes(), 0);
    }
  }
}

TEST_P(BothModels, APlanNeedsTheSameMemoryAsTheRun) {
  for (bool fused : {true, false}) {
    for (DType dtype : {DType::Float32, DType::BFloat16}) {
      WholeModel real(tiny(GetParam(), 0.1), dtype, Device::Cpu), planned(tiny(GetParam(), 0.1), dtype, Device::Meta);
      const Batch batch = random_batch(3, 12, 31, 1);
      real.train(batch, fused);
      planned.train(batch, fused);
      EXPECT_EQ(planned.arena().peak_bytes(), real.arena().peak_bytes());
      EXPECT_EQ(real.arena().used_bytes(), 0);
      EXPECT_EQ(planned.arena().used_bytes(), 0);
      EXPECT_GT(planned.kernels().counters().flops, 0);
    }
  }
}

TEST_P(BothModels, AFrozenParameterIsLeftOutAndTheOthersKeepTheirBits) {
  WholeModel all(tiny(GetParam()), DType::Float32, Device::Cpu), part(tiny(GetParam()), DType::Float32, Device::Cpu);
  const Batch batch = random_batch(3, 12, 31, 1);
  all.train(batch);
  for (const std::string& frozen : all.parameter_names()) {
    part.frozen = frozen;
    part.train(batch);
    for (const std::string& name : all.parameter_names()) {
      const std::vector<double> expected = values_of(all.gradient(name)), actual = values_of(part.gradient(name));
      EXPECT_EQ(actual, name == frozen ? std::vector<double>(expected.size()) : expected) << name << " while " << frozen;
    }
  }
}

TEST_P(BothModels, BFloat16FollowsFloat32) {
  WholeModel exact(tiny(GetParam()), DType::Float32, Device::Cpu), rounded(tiny(GetParam()), DType::BFloat16, Device::Cpu);
  const Batch batch = random_batch(3, 12, 31, 1);
  EXPECT_NEAR(rounded.train(batch), exact.train(batch), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Types, BothModels, testing::Values(Type::Gpt, Type::Llama),
                         [](const auto& type) { return type.param == Type::Gpt ? "Gpt" : "Llama"; });

TEST(Build, ListsLayersAndNamesParameters) {
  const Model gpt = build(tiny(Type::Gpt));
  EXPECT_THAT(gpt.names, testing::ElementsAre("embedding", "blocks.0", "blocks.1", "head"));
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : gpt.layers[1]->parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, testing::ElementsAre("norm1.gain", "norm1.bias", "attention.qkv.weight", "attention.qkv.bias",
                                          "attention.out.weight", "attention.out.bias", "norm2.gain", "norm2.bias",
                                          "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"));
  EXPECT_EQ(gpt.layers.back()->parameters().back().tied_to, parameter_name(gpt, 0, 0));
  names.clear();
  const Model llama = build(tiny(Type::Llama));
  for (const ParameterSpec& parameter : llama.layers[1]->parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, testing::ElementsAre("norm1.gain", "attention.qkv.weight", "attention.out.weight", "norm2.gain",
                                          "mlp.gate_up.weight", "mlp.down.weight"));
}

TEST(Build, DecaysMatricesOnlyAndNarrowsProjectionsIntoTheResidual) {
  for (Type type : {Type::Gpt, Type::Llama}) {
    const Model model = build(tiny(type));
    for (const auto& layer : model.layers) {
      for (const ParameterSpec& parameter : layer->parameters()) {
        const bool matrix = parameter.shape.dims() == 2;
        EXPECT_EQ(parameter.decay, matrix) << parameter.name;
        const bool into_residual = parameter.name == "attention.out.weight" || parameter.name == "mlp.down.weight";
        if (matrix) {
          EXPECT_DOUBLE_EQ(parameter.init.scale, into_residual ? 0.01 : 0.02) << parameter.name;
        }
      }
    }
  }
}

TEST(Build, SaysHowFusedProjectionsAreCut) {
  const Model llama = build(tiny(Type::Llama));
  const auto parameters = llama.layers[1]->parameters();
  EXPECT_EQ(parameters[1].split.dim, 0);
  EXPECT_THAT(parameters[1].split.segments, testing::ElementsAre(24, 12, 12));
  EXPECT_EQ(parameters[2].split.dim, 1);
  EXPECT_EQ(parameters[4].split.dim, 0);
  EXPECT_THAT(parameters[4].split.segments, testing::ElementsAre(64, 64));
}

TEST(ParameterCount, IsThePublishedOneOfGpt2) { EXPECT_EQ(parameter_count(build({.vocabulary_size = 50257})), 124'439'808); }

// Narayanan et al. 2021 and Korthikanti et al. 2022 give these numbers in millions.
TEST(ParameterCount, IsThePublishedOneOfMegatronsModels) {
  const auto millions = [](int64_t layers, int64_t hidden, int64_t heads) {
    const int64_t count = parameter_count(
        build({.layers = layers, .hidden_size = hidden, .heads = heads, .sequence_length = 2048, .vocabulary_size = 51200}));
    return std::llround(static_cast<double>(count) / 1e6);
  };
  EXPECT_EQ(millions(48, 6144, 64), 22'074);
  EXPECT_EQ(millions(96, 12288, 96), 174'616);
  EXPECT_EQ(millions(105, 20480, 128), 529'601);
  EXPECT_EQ(millions(128, 25600, 160), 1'008'039);
}

// Llama 2 7B, Llama 3 8B and 70B, and Llama 3.1 405B.
TEST(ParameterCount, IsThePublishedOneOfLlamas) {
  struct Llama {
    int64_t layers, hidden, heads, key_value_heads, feed_forward, vocabulary, parameters;
  };
  for (const Llama& llama : {Llama{32, 4096, 32, 32, 11008, 32000, 6'738'415'616},
                             {32, 4096, 32, 8, 14336, 128256, 8'030'261'248},
                             {80, 8192, 64, 8, 28672, 128256, 70'553'706'496},
                             {126, 16384, 128, 8, 53248, 128256, 405'853'388'800}})
    EXPECT_EQ(parameter_count(build({.type = Type::Llama,
                                     .layers = llama.layers,
                                     .hidden_size = llama.hidden,
                                     .heads = llama.heads,
                                     .key_value_heads = llama.key_value_heads,
                                     .feed_forward_size = llama.feed_forward,
                                     .sequence_length = 4096,
                                     .vocabulary_size = llama.vocabulary,
                                     .tied_embedding = false})),
              llama.parameters);
}

TEST(FlopsPerSample, AreSixForEachMultiplyingElementAndTokenAndAttention) {
  // A block has 12 H^2 + 13 H elements, of which 12 H^2 multiply.
  EXPECT_DOUBLE_EQ(flops_per_sample(build({.vocabulary_size = 50257})),
                   1024 * (6.0 * (12 * 12 * 768.0 * 768 + 50257 * 768.0) + 6.0 * 12 * 768 * 1024));
}

// A block of 3 tokens of 4 numbers keeps queries, keys and values, and 16 numbers of each token before and after GELU.
TEST(InnerBytes, AreOfTensorsBetweenALayersInputAndItsOutput) {
  const Model model = build({.type = Type::Sequential, .input = {1, 4, 3}, .network = {"columns", "block 2", "mean"}});
  EXPECT_THAT(count_inner_bytes(model), testing::ElementsAre(0, testing::Ge(4 * 3 * (12 + 16 + 16)), 0, 0));
}

// Heads of a size of their own make attention wider than the rest.
TEST(FlopsPerSample, CountTheSizeOfHeads) {
  const Description d{.type = Type::Llama,
                      .layers = 2,
                      .hidden_size = 8,
                      .heads = 4,
                      .key_value_heads = 2,
                      .head_size = 6,
                      .feed_forward_size = 16,
                      .sequence_length = 10,
                      .vocabulary_size = 5};
  const double multiplied = 2 * (8 * (4 + 2 + 2) * 6 + 8 * 4 * 6 + 3 * 8 * 16) + 5 * 8;
  EXPECT_DOUBLE_EQ(flops_per_sample(build(d)), 10 * (6 * multiplied + 6.0 * 2 * 4 * 6 * 10));
}

// 10 tokens see 4 each, less half a square of 4 that the first ones lack.
TEST(FlopsPerSample, CountWhatAWindowShows) {
  Description d{.layers = 1, .hidden_size = 8, .heads = 2, .sequence_length = 10, .vocabulary_size = 5};
  const double whole = flops_per_sample(build(d));
  d.attention_window = 4;
  EXPECT_DOUBLE_EQ(whole - flops_per_sample(build(d)), 12.0 * 8 * (50 - (40 - 8)));
  d.attention_window = 10;
  EXPECT_DOUBLE_EQ(whole, flops_per_sample(build(d)));
}

// Layers 1 and 3 of 4 have the window.
TEST(FlopsPerSample, CountOnlyLayersThatHaveAWindow) {
  Description d{.layers = 4, .hidden_size = 8, .heads = 2, .sequence_length = 10, .vocabulary_size = 5};
  const double whole = flops_per_sample(build(d));
  d.attention_window = 4;
  d.full_attention_every = 2;
  EXPECT_DOUBLE_EQ(whole - flops_per_sample(build(d)), 2 * 12.0 * 8 * (50 - (40 - 8)));
}

// With a window of 1 in every layer, a token knows nothing of others; in layers without one it does.
TEST(Build, GivesEveryNthLayerNoWindow) {
  Description d = tiny(Type::Llama);
  d.layers = 2;
  d.attention_window = 1;
  const auto last_logits_depend_on_first_token = [&] {
    WholeModel model(d, DType::Float32, Device::Cpu);
    Batch batch = random_batch(1, 6, 31, 1);
    const std::vector<double> before = model.logits(batch);
    batch.tokens[0] = (batch.tokens[0] + 1) % 31;
    const std::vector<double> after = model.logits(batch);
    return before.back() != after.back();
  };
  EXPECT_FALSE(last_logits_depend_on_first_token());
  d.full_attention_every = 2;
  EXPECT_TRUE(last_logits_depend_on_first_token());
}

void expect_refused(const Description& description, const std::string& message) {
  EXPECT_THAT([&] { build(description); }, testing::ThrowsMessage<ConfigError>(message));
}

TEST(Embedding, RefusesASequenceLongerThanItsPositions) {
  WholeModel model(tiny(Type::Gpt), DType::Float32, Device::Cpu);
  EXPECT_THAT(
      [&] { model.loss(random_batch(1, 13, 31, 1)); },
      testing::ThrowsMessage<ConfigError>("model.sequence_length: a sequence of 13 tokens was given, but the model has 12 "
                                          "learned positions; shorten the sequence"));
}

TEST(Build, RefusesSizesThatDoNotFit) {
  expect_refused({.vocabulary_size = 0}, "model.vocabulary_size: 0 is not accepted; give a number of at least 1");
  expect_refused({.hidden_size = 10, .heads = 3, .vocabulary_size = 5},
                 "model.heads: 3 heads do not divide model.hidden_size 10; use a divisor");
  expect_refused({.hidden_size = 12, .heads = 4, .key_value_heads = 3, .vocabulary_size = 5},
                 "model.key_value_heads: 3 does not divide model.heads 4; use a divisor");
  expect_refused(
      {.type = Type::Llama, .hidden_size = 12, .heads = 4, .vocabulary_size = 5},
      "model.heads: 4 heads with model.hidden_size 12 have the odd size 3, but rotary positions rotate elements in pairs; "
      "make hidden_size / heads even");
  expect_refused({.type = Type::Llama, .hidden_size = 12, .heads = 4, .head_size = 5, .vocabulary_size = 5},
                 "model.head_size: 5 is odd, but rotary positions rotate elements in pairs; use an even number");
  expect_refused({.type = Type::Llama, .hidden_size = 40, .heads = 4, .vocabulary_size = 5, .rotary_share = 0.35},
                 "model.rotary_share: 0.35 of the head size 10 are 3 elements, but rotary positions rotate elements in pairs; "
                 "choose a share that gives an even number");
  expect_refused({.type = Type::Llama,
                  .vocabulary_size = 5,
                  .rotary_scaling = {.type = model::RotaryScalingType::Llama3, .low_frequency_factor = 4}},
                 "model.rotary_scaling.low_frequency_factor: 4 is not less than high_frequency_factor 4; use a smaller number");
  expect_refused({.vocabulary_size = 5, .dropout = 1.0},
                 "model.dropout: 1 is not accepted; give a number of at least 0 and less than 1");
}

}  // namespace
}  // namespace trivet::model
