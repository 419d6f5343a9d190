// Steps that are skipped because a gradient is not finite: how they are counted, and what a checkpoint keeps of that.
// training_reference_test.cpp tests what they do to numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  explicit SkippingRun(comm::World& world) : engine_(make_engine(world)) {}

  bool step(bool overflows) {
    overflows_ = overflows;
    const std::vector<int32_t> tokens{1, 2, 3, 4}, targets{2, 3, 4, 5};
    const Shape shape{1, kSequence};
    const Microbatch microbatch{{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}, 0};
    return engine_.train_batch({&microbatch, 1}).skipped;
  }
  Engine& engine() { return engine_; }

 private:
  Engine make_engine(comm::World& world) {
    const Config config = parse_config(R"({"model": {"layers": 1, "hidden_size": 8, "heads": 2, "sequence_length": 4},
                                           "train_batch_size": 1, "training": {"stop_after_skipped": 3}})",
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
