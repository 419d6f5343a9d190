// Direct preference optimization: from lines of JSON to losses, rewards and gradients, steps are compared with PyTorch
// (tests/golden/dpo_reference.py, which compares itself with TRL) and with themselves on other layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "data/microbatch_loader.h"
#include "data/referenced_source.h"
#include "data/training_data.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/engine/golden_training.h"
#include "tests/model/read_safetensors.h"
#include "trainer/open_data.h"
#include "trainer/pair_references.h"

namespace trivet::test {
namespace {

const std::string kDpoFolder = TRIVET_SOURCE_DIR "/tests/golden/dpo/";

struct DpoGolden {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(kDpoFolder + "dpo.json"));
  std::map<std::string, model::GoldenTensor> tensors = model::read_safetensors(kDpoFolder + "dpo.safetensors");

  NamedValues values(const std::string& kind) const {
    NamedValues values;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(kind + ".")) values[name.substr(kind.size() + 1)] = tensor.values;
    return values;
  }
  std::vector<double> table(const char* key) const {
    std::vector<double> table;
    for (const auto& pair : json.at(key))
      for (const double value : pair) table.push_back(value);
    return table;
  }
};

const DpoGolden& dpo_golden() {
  static const DpoGolden golden;
  return golden;
}

struct DpoStep {
  double loss = 0, grad_norm = 0, chosen = 0, rejected = 0;
  int64_t pairs = 0, correct = 0;
  bool operator==(const DpoStep&) const = default;  // none of them is NaN, so equal values are equal bits
};

struct DpoTrace {
  std::vector<double> reference;  // of all answers
  std::vector<DpoStep> steps;
  DpoStep evaluation;   // of all pairs, after the last step
  NamedValues weights;  // likewise
  bool operator==(const DpoTrace&) const = default;
};

struct DpoRun {
  int ranks = 1;
  std::vector<std::string> overrides;  // of the golden config
  int64_t steps = 1;
  bool golden_weights = true;
  std::vector<double> reference = {};  // empty: of the weights that the run begins with
};

DpoStep step_of(const StepResult& result) {
  return {result.loss, result.grad_norm, result.chosen_reward, result.rejected_reward, result.targets, result.correct};
}

std::vector<double> table_of(const data::SampleSource& pairs) {
  std::vector<double> table(static_cast<size_t>(2 * pairs.pairs())), values(pairs.spec().reference_of(1).elements());
  std::vector<int64_t> answers(values.size());
  for (int64_t sample = 0; sample < pairs.samples(); ++sample) {
    pairs.fill_answers(sample, answers);
    pairs.fill_reference(sample, values);
    for (size_t i = 0; i < values.size(); ++i)
      if (answers[i] >= 0) table.at(answers[i]) = values[i];
  }
  return table;
}

// The rank's microbatches of a step, or of an evaluation of all pairs.
class DpoBatch {
 public:
  DpoBatch(const data::MicrobatchLoader& loader, int64_t step) : memory_(static_cast<size_t>(loader.layout().accumulation)) {
    for (size_t m = 0; m < memory_.size(); ++m) {
      loader.fill(step, static_cast<int64_t>(m), memory_[m]);
      views_.push_back(memory_[m].view);
    }
  }
  std::span<const Microbatch> views() const { return views_; }

 private:
  std::vector<data::HostMicrobatch> memory_;
  std::vector<Microbatch> views_;
};

DpoTrace train_dpo_on_rank(const DpoRun& run, comm::World& world) {
  std::vector<std::string> overrides{"data.train=" + kDpoFolder + "pairs.jsonl"};
  overrides.insert(overrides.end(), run.overrides.begin(), run.overrides.end());
  const Config config = parse_config(dpo_golden().json.at("config").dump(), "dpo", overrides);
  const auto data = trainer::open_text_data(config);
  model::Model model = model::build(model::with_vocabulary(config.model, data->vocabulary_size()));
  Plan plan = make_plan(config, model, world.size());
  Engine engine(std::move(plan), std::move(model), world);
  if (run.golden_weights) set_weights(engine, dpo_golden().values("weight"));
  trainer::PairReferences references(*data);
  if (run.reference.empty()) references.compute(engine, world, "initial");
  const std::shared_ptr<const data::SampleSource> pairs =
      run.reference.empty()
          ? references.train()
          : std::make_shared<data::ReferencedSource>(data->train(), std::make_shared<data::ReferenceTable>(run.reference));
  const BatchLayout layout = engine.plan().batch_layout(world.rank());
  const data::MicrobatchLoader loader(pairs, data::SampleOrder(pairs->samples(), 1, config.data.shuffle), layout);
  DpoTrace trace{.reference = table_of(*pairs)};
  for (int64_t step = 0; step < run.steps; ++step)
    trace.steps.push_back(step_of(engine.train_batch(DpoBatch(loader, step).views())));
  trace.evaluation = step_of(engine.evaluate(DpoBatch(loader, 0).views()));
  trace.weights = weights_of(engine);
  return trace;
}

DpoTrace train_dpo(const DpoRun& run) {
  DpoTrace trace;
  comm::run_threads(run.ranks, [&](comm::World& world) {
    DpoTrace own = train_dpo_on_rank(run, world);
    if (world.rank() == 0) trace = std::move(own);
  });
  return trace;
}

// As in sft_reference_test.cpp: SGD makes the gradients readable, and sums in float32 of some hundred terms each are rounded.
// The loss and the norm also have what rounding of log-probabilities near 100 does to a margin: 100 x 2^-24 of about 1.
constexpr double kDpoRate = 1 << 14;
constexpr double kDpoTolerance = 1e-5;

void expect_golden_dpo_gradients(const std::string& loss, const NamedValues& weights) {
  const NamedValues initial = dpo_golden().values("weight"), gradients = dpo_golden().values("gradient." + loss);
  ASSERT_EQ(gradients.size(), initial.size());
  for (const auto& [name, gradient] : gradients) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(gradient[i]));
      difference = std::max(difference, std::abs((initial.at(name)[i] - weights.at(name)[i]) / kDpoRate - gradient[i]));
    }
    EXPECT_LE(difference, kDpoTolerance * largest) << loss << " " << name;
  }
}

void expect_golden_step(const DpoStep& step, const nlohmann::json& golden, double tolerance) {
  const auto near = [&](double value, const nlohmann::json& expected) {
    EXPECT_NEAR(value, expected.get<double>(), tolerance * std::max(1.0, std::abs(expected.get<double>())));
  };
  near(step.loss, golden.at("loss"));
  near(step.grad_norm, golden.at("grad_norm"));
  near(step.chosen, golden.at("rewards").at("chosen"));
  near(step.rejected, golden.at("rewards").at("rejected"));
  EXPECT_EQ(step.correct, golden.at("rewards").at("correct").get<int64_t>());
  EXPECT_EQ(step.pairs, 6);
}

std::vector<std::string> with_keys(const nlohmann::json& dpo, std::vector<std::string> overrides) {
  for (const auto& [key, value] : dpo.items()) overrides.push_back(fmt::format("dpo.{}={}", key, value.dump()));
  return overrides;
}

// The 6 pairs fit into 4 samples.
const std::vector<std::string> kPacked{"data.packing=isolated", "train_batch_size=4"};

TEST(DpoReference, LossRewardsAndGradientsAgreeWithPyTorch) {
  const std::string sgd = R"(optimizer={"type": "SGD", "params": {"lr": 16384}})";
  for (const auto& golden : dpo_golden().json.at("cases")) {
    const auto name = golden.at("name").get<std::string>();
    for (const auto& [ranks, overrides] : std::vector<std::pair<int, std::vector<std::string>>>{
             {1, {sgd}},
             {1, {sgd, "train_micro_batch_size_per_gpu=2"}},
             {1, {sgd, kPacked[0], kPacked[1]}},
             {2, {sgd, "train_micro_batch_size_per_gpu=1", "parallel.context=2", kPacked[0], kPacked[1]}},
             {2, {sgd, "train_micro_batch_size_per_gpu=1", "zero_optimization.stage=2"}}}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, {}", name, ranks, overrides.back()));
      const DpoTrace trace = train_dpo(
          {.ranks = ranks, .overrides = with_keys(golden.at("dpo"), overrides), .reference = dpo_golden().table("reference")});
      expect_golden_step(trace.steps[0], golden, kDpoTolerance);
      expect_golden_dpo_gradients(name, trace.weights);
    }
  }
}

// Log-probabilities of answers have the bits that they have in rows of their own, on every layout and in every order of
// samples.
TEST(DpoReference, OfPackedPairsIsThatOfTheSamePairs) {
  const auto trace_of = [](int ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"reproducible=layout", "parallel.context_grain=2", "train_micro_batch_size_per_gpu=1"});
    return train_dpo({.ranks = ranks, .overrides = overrides, .steps = 3, .golden_weights = false});
  };
  const DpoTrace plain = trace_of(1, {}), packed = trace_of(1, kPacked);
  EXPECT_EQ(packed.reference, plain.reference);
  EXPECT_EQ(trace_of(3, {kPacked[0], "train_batch_size=6"}).reference, plain.reference) << "two of six samples are padding";
  EXPECT_EQ(packed.steps[0].loss, std::log(2.0));
  EXPECT_EQ(packed.steps[0].pairs, 6);
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"parallel.context=2"}},
           {4, {"zero_optimization.stage=3", "train_micro_batch_size_per_gpu=1"}},
           {8, {"parallel.context=2", "parallel.pipeline=2", "parallel.tensor=2", "zero_optimization.stage=1"}},
           {4, {"parallel.tensor=2", "zero_optimization.stage=2", "activation_checkpointing.mode=full"}}}) {
    std::vector<std::string> overrides = layout;
    overrides.insert(overrides.end(), kPacked.begin(), kPacked.end());
    EXPECT_TRUE(trace_of(ranks, overrides) == packed) << layout[0];
  }
}

// The reference is computed by the engine, from the weights that the run begins with.
TEST(DpoReference, StepsAgreeWithPyTorch) {
  const auto& golden = dpo_golden().json.at("run");
  const auto steps = static_cast<int64_t>(golden.at("steps").size());
  const DpoTrace trace =
      train_dpo({.overrides = with_keys(golden.at("dpo"), {"optimizer=" + golden.at("optimizer").dump()}), .steps = steps});
  const std::vector<double> own = dpo_golden().table("own");
  ASSERT_EQ(trace.reference.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(trace.reference[i], own[i], 1e-6 * std::abs(own[i])) << i;
  EXPECT_EQ(trace.steps[0].chosen, 0);
  EXPECT_EQ(trace.steps[0].loss, std::log(2.0));
  // Each step of this rate multiplies what rounding did before by some number above 1: five times the tolerance of one step.
  for (size_t step = 0; step < trace.steps.size(); ++step) {
    SCOPED_TRACE(step);
    expect_golden_step(trace.steps[step], golden.at("steps")[step], 5e-5);
  }
}

TEST(DpoReference, HasTheSameBitsOnEveryLayout) {
  const auto trace_of = [](int ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"reproducible=layout", "train_micro_batch_size_per_gpu=1", "training.steps=4",
                                       R"(optimizer={"type": "AdamW", "params": {"lr": 0.01}})"});
    return train_dpo({.ranks = ranks, .overrides = overrides, .steps = 4, .golden_weights = false});
  };
  const DpoTrace one = trace_of(1, {});
  EXPECT_LT(one.steps[3].loss, one.steps[0].loss);
  EXPECT_GT(one.evaluation.chosen, one.evaluation.rejected);
  EXPECT_LT(one.evaluation.loss, one.steps[3].loss);
  EXPECT_TRUE(trace_of(2, {"zero_optimization.stage=3"}) == one);
  EXPECT_TRUE(trace_of(3, {"zero_optimization.stage=2", "activation_checkpointing.mode=full"}) == one);
  for (const char* stage : {"zero_optimization.stage=1", "zero_optimization.stage=3"})
    EXPECT_TRUE(trace_of(8, {"parallel.pipeline=2", "parallel.tensor=2", stage}) == one) << stage;
  EXPECT_TRUE(trace_of(2, {"parallel.pipeline=2", "pipeline.schedule=zb-h1"}) == one);
}

TEST(DpoReference, BfloatsHaveTheSameBitsOnEveryLayoutAndFloat16IsNear) {
  const auto trace_of = [](int ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"reproducible=layout", "train_micro_batch_size_per_gpu=1"});
    return train_dpo({.ranks = ranks, .overrides = overrides, .steps = 3, .golden_weights = false});
  };
  const DpoTrace one = trace_of(1, {"bf16.enabled=true"}), exact = trace_of(1, {});
  EXPECT_TRUE(trace_of(2, {"bf16.enabled=true", "zero_optimization.stage=3"}) == one);
  EXPECT_TRUE(trace_of(4, {"bf16.enabled=true", "parallel.pipeline=2", "parallel.tensor=2"}) == one);
  const DpoTrace half = trace_of(1, {"fp16.enabled=true", "fp16.loss_scale=1024"});
  EXPECT_EQ(half.steps[0].loss, std::log(2.0));
  // Significands of 11 bits: 2^-11 is 4.9e-4, and the gradients of two answers partly cancel.
  EXPECT_NEAR(half.steps[0].grad_norm, exact.steps[0].grad_norm, 5e-3 * exact.steps[0].grad_norm);
}

TEST(DpoReference, AdaptersAreComparedWithTheirBaseModelOnEveryLayout) {
  const auto trace_of = [](int ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"reproducible=layout", "train_micro_batch_size_per_gpu=1", "training.steps=3",
                                       R"(model.lora={"rank": 2, "targets": ["all-linear"]})",
                                       R"(optimizer={"type": "AdamW", "params": {"lr": 0.05}})"});
    return train_dpo({.ranks = ranks, .overrides = overrides, .steps = 3, .golden_weights = false});
  };
  const DpoTrace one = trace_of(1, {}),
                 plain = train_dpo(
                     {.overrides = {"reproducible=layout", "train_micro_batch_size_per_gpu=1"}, .golden_weights = false});
  EXPECT_EQ(one.reference, plain.reference);  // new adapters add nothing
  EXPECT_GT(one.evaluation.chosen, one.evaluation.rejected);
  EXPECT_TRUE(trace_of(2, {"zero_optimization.stage=3"}) == one);
  EXPECT_TRUE(trace_of(8, {"parallel.pipeline=2", "parallel.tensor=2", "zero_optimization.stage=1"}) == one);
}

}  // namespace
}  // namespace trivet::test
