// Tests that a plan with a curriculum has the memory of every step, and no more.
#include <gtest/gtest.h>

#include "comm/world.h"
#include "engine/config/curriculum.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

Config growing_config(int64_t pipeline) {
  Config config = small_config();
  config.curriculum = {.enabled = true, .min_difficulty = 1, .max_difficulty = 29, .total_steps = 28, .difficulty_step = 1};
  config.parallel.pipeline = pipeline;
  return config;
}

// Runs every length, and no evaluation, whose sequences are longer.
int64_t peak_of_steps(const Plan& plan, int64_t steps) {
  std::vector<int64_t> peaks(plan.mesh.size());
  comm::run_threads(plan.mesh.size(), [&](comm::World& world) {
    model::Model model = model_of(plan.config);
    Engine engine(plan, model_of(plan.config), world);
    for (int64_t step = 0; step < steps; ++step) {
      const SampleSpec sample = sample_of_step(plan.config.curriculum, model.sample, step);
      const std::vector<int32_t> tokens(sample.input.elements(), 5);
      const ConstTensorView view{tokens.data(), DType::Int32, sample.inputs_of(1)};
      engine.train_batch(std::vector<Microbatch>(plan.batch.gradient_accumulation_steps, {view, view, 0}));
    }
    peaks[world.rank()] = engine.activations().peak_bytes();
  });
  return peaks[0];
}

TEST(CurriculumPlan, HasTheMemoryOfEveryLength) {
  for (const int64_t pipeline : {1, 2}) {
    const Plan plan = plan_of(growing_config(pipeline), static_cast<int>(pipeline));
    EXPECT_EQ(peak_of_steps(plan, 30), plan.ranks[0].activation_arena_bytes) << "pipeline " << pipeline;
  }
}

TEST(CurriculumPlan, CountsTheLongestStep) {
  Config config = growing_config(1);
  config.model.type = model::Type::Llama;  // a GPT has a parameter for each position, which its optimizer counts, too
  const Plan plan = plan_of(config, 1);
  config.curriculum = {};
  config.model.sequence_length = 29;
  const Plan shorter = plan_of(config, 1);
  EXPECT_EQ(plan.ranks[0].step_counters.flops, shorter.ranks[0].step_counters.flops);
}

}  // namespace
}  // namespace trivet
