// Supervised fine-tuning: whole conversations packed into samples, a loss on the answers alone. From the lines of JSON to loss
// and gradients, one step is compared with PyTorch (tests/golden/sft_reference.py) and with itself on other layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "data/microbatch_loader.h"
#include "data/training_data.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/engine/golden_training.h"
#include "tests/model/read_safetensors.h"
#include "trainer/open_data.h"

namespace trivet::test {
namespace {

const std::string kSftFolder = TRIVET_SOURCE_DIR "/tests/golden/sft/";

struct SftGolden {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(kSftFolder + "sft.json"));
  std::map<std::string, model::GoldenTensor> tensors = model::read_safetensors(kSftFolder + "sft.safetensors");

  NamedValues values(const std::string& kind) const {
    NamedValues values;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(kind + ".")) values[name.substr(kind.size() + 1)] = tensor.values;
    return values;
  }
};

const SftGolden& sft_golden() {
  static const SftGolden golden;
  return golden;
}

struct SftTrace {
  std::vector<uint64_t> loss_bits, norm_bits;  // of each step
  std::vector<int64_t> targets;                // counted in each step
  NamedValues weights;                         // after the last step
  bool operator==(const SftTrace&) const = default;
};

struct SftRun {
  int ranks = 1;
  std::vector<std::string> overrides;  // of the golden config
  int64_t steps = 1;
  bool golden_weights = true;
};

// A rank's microbatches of a step.
class SftBatch {
 public:
  SftBatch(const data::MicrobatchLoader& loader, int64_t step) : memory_(static_cast<size_t>(loader.layout().accumulation)) {
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

SftTrace train_sft_on_rank(const SftRun& run, comm::World& world) {
  std::vector<std::string> overrides{"data.train=" + kSftFolder + "chats.jsonl"};
  overrides.insert(overrides.end(), run.overrides.begin(), run.overrides.end());
  const Config config = parse_config(sft_golden().json.at("config").dump(), "sft", overrides);
  const auto data = trainer::open_text_data(config);
  model::Model model = model::build(model::with_vocabulary(config.model, data->vocabulary_size()));
  Plan plan = make_plan(config, model, world.size());
  Engine engine(std::move(plan), std::move(model), world);
  if (run.golden_weights) set_weights(engine, sft_golden().values("weight"));
  const auto& batch = engine.plan().batch;
  const Mesh& mesh = engine.plan().mesh;
  const data::MicrobatchLoader loader(data->train(), data::SampleOrder(data->train()->samples(), 1, config.data.shuffle),
                                      {.micro_batch = batch.micro_batch_size,
                                       .accumulation = batch.gradient_accumulation_steps,
                                       .data_size = mesh.size(Axis::Data),
                                       .data_rank = mesh.coordinate_of(world.rank(), Axis::Data)});
  SftTrace trace;
  for (int64_t step = 0; step < run.steps; ++step) {
    const StepResult result = engine.train_batch(SftBatch(loader, step).views());
    trace.loss_bits.push_back(std::bit_cast<uint64_t>(static_cast<double>(result.loss)));
    trace.norm_bits.push_back(std::bit_cast<uint64_t>(static_cast<double>(result.grad_norm)));
    trace.targets.push_back(result.targets);
  }
  trace.weights = weights_of(engine);
  return trace;
}

SftTrace train_sft(const SftRun& run) {
  SftTrace trace;
  comm::run_threads(run.ranks, [&](comm::World& world) {
    SftTrace own = train_sft_on_rank(run, world);
    if (world.rank() == 0) trace = std::move(own);
  });
  return trace;
}

int64_t counted_in_golden() {
  int64_t sum = 0;
  for (const int64_t counted : sft_golden().json.at("counted")) sum += counted;
  return sum;
}

// SGD without momentum moves a weight by lr x gradient, so a large power of two as learning rate makes the step readable: the
// weight itself, of which a float32 keeps 24 bits, is then small compared with the step.
constexpr double kRate = 1 << 14;

// Sums in float32 of some hundred terms each: the largest difference found was 1e-6 of the largest element of a tensor. With a
// mean over samples or ranks of their own means, the loss of these samples would differ by 1.7e-2 or 8.6e-3.
constexpr double kTolerance = 5e-6;

void expect_golden_gradients(const NamedValues& weights) {
  const NamedValues initial = sft_golden().values("weight");
  for (const auto& [name, gradient] : sft_golden().values("gradient")) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      largest = std::max(largest, std::abs(gradient[i]));
      difference = std::max(difference, std::abs((initial.at(name)[i] - weights.at(name)[i]) / kRate - gradient[i]));
    }
    EXPECT_LE(difference, kTolerance * largest) << name;
  }
}

TEST(SftReference, LossAndGradientsAgreeWithPyTorch) {
  const std::vector<std::string> sgd{R"(optimizer={"type": "SGD", "params": {"lr": 16384}})", "gradient_clipping=0"};
  const auto with = [&](std::vector<std::string> further) {
    further.insert(further.begin(), sgd.begin(), sgd.end());
    return further;
  };
  for (const SftRun& run : {SftRun{1, with({})}, SftRun{1, with({"train_micro_batch_size_per_gpu=1"})},
                            SftRun{2, with({"train_micro_batch_size_per_gpu=1", "zero_optimization.stage=2"})}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", run.ranks, run.overrides.back()));
    const SftTrace trace = train_sft(run);
    EXPECT_EQ(trace.targets[0], counted_in_golden());
    const double loss = sft_golden().json.at("loss"), norm = sft_golden().json.at("grad_norm");
    EXPECT_NEAR(std::bit_cast<double>(trace.loss_bits[0]), loss, kTolerance * loss);
    EXPECT_NEAR(std::bit_cast<double>(trace.norm_bits[0]), norm, kTolerance * norm);
    expect_golden_gradients(trace.weights);
  }
}

// The microbatches, and with them the ranks, count different numbers of targets.
TEST(SftReference, MaskedLossesHaveTheSameBitsOnEveryLayout) {
  const auto counted = sft_golden().json.at("counted").get<std::vector<int64_t>>();
  ASSERT_EQ(counted.size(), 6);
  ASSERT_NE(counted[0] + counted[2] + counted[4], counted[1] + counted[3] + counted[5]);
  const auto trace_of = [](int ranks, std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"reproducible=layout", "train_micro_batch_size_per_gpu=1", "training.steps=4",
                                       R"(optimizer={"type": "AdamW", "params": {"lr": 0.01}})"});
    return train_sft({.ranks = ranks, .overrides = overrides, .steps = 4, .golden_weights = false});
  };
  const SftTrace one = trace_of(1, {});
  EXPECT_LT(std::bit_cast<double>(one.loss_bits[3]), std::bit_cast<double>(one.loss_bits[0]));
  EXPECT_EQ(one.targets, std::vector<int64_t>(4, counted_in_golden()));
  EXPECT_TRUE(trace_of(2, {"zero_optimization.stage=3"}) == one);
  EXPECT_TRUE(trace_of(8, {"parallel.pipeline=2", "parallel.tensor=2", "zero_optimization.stage=1"}) == one);
}

}  // namespace
}  // namespace trivet::test
