// Steps that are skipped because a gradient is not finite: how they are counted, and what a checkpoint keeps of that.
// training_reference_test.cpp tests what they do to numbers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/world.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/cli/program.h"
#include "tests/engine/overflowing_layer.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kVocabulary = 11, kSequence = 4;

// An engine on one rank whose steps are skipped on demand.
class SkippingRun {
 public:
  explicit SkippingRun(comm::World& world, const std::string& further = "") : engine_(make_engine(world, further)) {}

  bool step(bool overflows) {
    overflows_ = overflows;
    return train({2, 3, 4, 5}).skipped;
  }
  StepResult step_without_targets() { return train({-1, -1, -1, -1}); }
  Engine& engine() { return engine_; }

 private:
  StepResult train(const std::vector<int32_t>& targets) {
    const std::vector<int32_t> tokens{1, 2, 3, 4};
    const Shape shape{1, kSequence};
    const Microbatch microbatch{{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}, 0};
    return engine_.train_batch({&microbatch, 1});
  }

  Engine make_engine(comm::World& world, const std::string& further) {
    const Config config = parse_config(R"({"model": {"layers": 1, "hidden_size": 8, "heads": 2, "sequence_length": 4},
                                           "train_batch_size": 1, "training": {"stop_after_skipped": 3})" +
                                           further + "}",
                                       "skipping");
    model::Model model = model::build(model::with_vocabulary(config.model, kVocabulary));
    model.layers[1] = std::make_unique<test::Overflowing>(std::move(model.layers[1]), overflows_);
    Plan plan = make_plan(config, model, 1);
    return Engine(std::move(plan), std::move(model), world);
  }

  bool overflows_ = false;
  Engine engine_;
};

TEST(SkippedSteps, CountAsStepsAndNotAsUpdates) {
  comm::run_threads(1, [](comm::World& world) {
    SkippingRun run(world);
    const std::vector<bool> overflows{true, false, true, true, false};
    for (const bool overflow : overflows) EXPECT_EQ(run.step(overflow), overflow);
    EXPECT_EQ(run.engine().progress().steps, 5);
    EXPECT_EQ(run.engine().progress().updates, 2);
    EXPECT_EQ(run.engine().progress().skipped_in_a_row, 0);
  });
}

// Weight decay and momentum would move the weights, and a schedule would go on, although nothing was learned.
TEST(StepsWithoutTargets, ChangeNothingWithAnyOptimizer) {
  for (const auto& [name, type] : EnumNames<OptimizerType>::table) {
    SCOPED_TRACE(name);
    const std::string optimizer = fmt::format(R"(, "optimizer": {{"type": "{}", "params": {{"lr": 0.1, "weight_decay": 0.1}}}},
                        "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": 0.1, "warmup_num_steps": 4}}}})",
                                              name);
    comm::run_threads(1, [&](comm::World& world) {
      SkippingRun with(world, optimizer), without(world, optimizer);
      for (int step = 0; step < 3; ++step) {
        const double loss_before = with.engine().last_loss();
        const StepResult none = with.step_without_targets();
        EXPECT_TRUE(none.skipped);
        EXPECT_EQ(none.targets, 0);
        EXPECT_TRUE(std::isnan(none.loss) && std::isnan(none.grad_norm));
        EXPECT_EQ(with.engine().last_loss(), loss_before);
        EXPECT_FALSE(with.step(false));
        EXPECT_FALSE(without.step(false));
        const model::Model& model = with.engine().model();
        for (size_t layer = 0; layer < model.layers.size(); ++layer)
          for (const ParameterSpec& spec : model.layers[layer]->parameters()) {
            const std::string name_of_weight = model.names[layer] + "." + spec.name;
            if (spec.tied_to.empty()) {
              EXPECT_EQ(with.engine().weight(name_of_weight), without.engine().weight(name_of_weight)) << name_of_weight;
            }
          }
      }
      EXPECT_EQ(with.engine().progress().steps, 6);
      EXPECT_EQ(with.engine().progress().updates, 3);
      EXPECT_EQ(with.engine().learning_rate(), without.engine().learning_rate());
    });
  }
}

TEST(StepsWithoutTargets, AreNoOverflows) {
  comm::run_threads(1, [](comm::World& world) {
    SkippingRun run(world, R"(, "fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1})");
    const double scale = run.engine().loss_scale();
    EXPECT_FALSE(run.step(false));
    for (int step = 0; step < 5; ++step) run.step_without_targets();
    EXPECT_EQ(run.engine().loss_scale(), scale);
    EXPECT_EQ(run.engine().progress().skipped_in_a_row, 0);
  });
}

// A run that dies and is resumed after each skipped step must not continue forever.
TEST(SkippedSteps, ARowOfThemGoesOnAfterAResume) {
  const test::Folder folder;
  comm::run_threads(1, [&](comm::World& world) {
    SkippingRun run(world);
    EXPECT_FALSE(run.step(false));
    EXPECT_TRUE(run.step(true));
    EXPECT_TRUE(run.step(true));
    run.engine().save(folder.at("checkpoints"));
  });
  comm::run_threads(1, [&](comm::World& world) {
    SkippingRun run(world);
    ASSERT_TRUE(run.engine().load(folder.at("checkpoints")));
    EXPECT_EQ(run.engine().progress().skipped_in_a_row, 2);
    EXPECT_TRUE(run.step(true));
    EXPECT_THAT([&] { run.step(true); }, ThrowsMessage<NumericsError>(HasSubstr("gradients were not finite 3 times in a row")));
  });
}

}  // namespace
}  // namespace trivet
