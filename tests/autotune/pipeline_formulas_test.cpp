// Closed formulas for pipelines, compared with the simulator and the plan.
#include "autotune/pipeline_formulas.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"
#include "pipeline/validate.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

TEST(PipelineFormulas, SayWhatEveryRankHolds) {
  for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward, ScheduleKind::ZeroBubbleH1,
                                  ScheduleKind::ZeroBubble2p, ScheduleKind::Interleaved})
    for (const int ranks : {1, 2, 4, 8})
      for (const int chunks : {2, 4})
        for (const int microbatches : {2 * ranks, 4 * ranks}) {
          const int of_a_rank = kind == ScheduleKind::Interleaved ? chunks : 1;
          const auto schedule = pipeline::generate(kind, {ranks, microbatches, of_a_rank});
          const auto peaks = pipeline::validate(schedule, microbatches).peak_until_backward;
          for (int rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(peaks[static_cast<size_t>(rank)], most_in_flight(kind, ranks, rank, microbatches, of_a_rank))
                << name_of(kind) << ", rank " << rank << " of " << ranks << ", " << of_a_rank << " chunks";
        }
  EXPECT_THROW(most_in_flight(ScheduleKind::ZeroBubbleV, 4, 0, 8, 2), std::logic_error);
}

// If a microbatch counts as held until the gradients of weights, ZB-H1 holds p microbatches on every rank.
TEST(PipelineFormulas, ZeroBubbleHoldsAsMuchOnEveryRankUntilTheWeights) {
  for (const int ranks : {2, 4, 8})
    for (const int peak : pipeline::validate(pipeline::zero_bubble_h1(ranks, 4 * ranks), 4 * ranks).peak_microbatches)
      EXPECT_EQ(peak, ranks);
}

TEST(PipelineFormulas, IdleSecondsAreThoseOfTheClock) {
  for (const pipeline::ComputeCosts& costs : {pipeline::ComputeCosts{1, 1, 1}, {1, 1.2, 0.8}})
    for (const int ranks : {2, 4, 8}) {
      const int microbatches = 4 * ranks;
      const auto schedule = pipeline::zero_bubble_h1(ranks, microbatches);
      const double work = microbatches * (costs.forward + costs.backward_input + costs.backward_weight);
      const double makespan = pipeline::simulate(schedule, {.cost = pipeline::even_costs(schedule, costs)}).makespan;
      const PassSeconds passes{costs.forward, costs.backward_input + costs.backward_weight, costs.backward_weight};
      EXPECT_NEAR(makespan - work, zero_bubble_idle(ranks, passes), 1e-9);
    }
}

// DualPipe's formula is table 2 of DeepSeek-V3, here with three equal passes and a forward that overlaps a backward in the time
// of both. The V schedules follow Qi et al. 2024.
TEST(PipelineFormulas, OfSchedulesThatTrivetDoesNotHave) {
  EXPECT_DOUBLE_EQ(dual_pipe_idle(8, {.forward = 1, .backward = 2, .weight = 1, .together = 3}), 3 * (3 + 2 - 3));
  EXPECT_EQ(dual_pipe_idle(2, {.forward = 1, .backward = 2, .weight = 1, .together = 3}), 0);
  EXPECT_THROW(dual_pipe_idle(3, {}), std::logic_error);
  EXPECT_DOUBLE_EQ(bubble_rate(4, 8), 3.0 / 11);
  EXPECT_DOUBLE_EQ(v_half(4, 8).bubble_share, 1.5 / 11);
  EXPECT_DOUBLE_EQ(v_min(4, 8).bubble_share, 2.0 / 11);
  EXPECT_DOUBLE_EQ(v_half(4, 8).activation_share, 1.0 / 2);
  EXPECT_DOUBLE_EQ(v_min(4, 8).activation_share, 1.0 / 3);
}

// With equal times for all passes, ZB-H1 is idle for a third of the time that 1F1B is.
TEST(PipelineFormulas, ZeroBubbleIsIdleForAThird) {
  EXPECT_DOUBLE_EQ(zero_bubble_idle(8, {.forward = 1, .backward = 2, .weight = 1}) / (7 * 3.0), 1.0 / 3);
}

// The formula gives what the plan's layout holds, without padding. Mean and heaviest stage differ: five layers do not divide
// evenly among four ranks, and the end stages have tables.
TEST(PipelineFormulas, ParametersOfAStageAreThoseOfThePlan) {
  Config config = small_config();
  config.model.layers = 5;
  const TransformerShape shape{.layers = 5, .hidden = 64, .heads = 4, .vocabulary = 96, .sequence = 32};
  const model::Model model = model::build(model::with_vocabulary(config.model, 96));
  for (const int tensor : {1, 2})
    for (const int stages : {1, 2, 3, 4}) {
      config.parallel.tensor = tensor, config.parallel.pipeline = stages;
      const Plan plan = make_plan(config, model, stages * tensor);
      double heaviest = 0, sum = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = static_cast<size_t>(stage);
        const bool first = stage == 0, last = stage + 1 == stages;
        const int blocks = plan.stages.first_blocks[at + 1] - plan.stages.first_blocks[at];
        double held = 0;
        for (const zero::BlockLayout& block : plan.ranks[at * static_cast<size_t>(tensor)].layout.blocks)
          for (const zero::FlatGroup& group : block.groups)
            if (group.role != zero::GroupRole::TiedGradients) held += static_cast<double>(group.parameter_elements());
        EXPECT_DOUBLE_EQ(held,
                         gpt_stage_parameters(shape, {.layers = blocks - first - last, .first = first, .last = last}, tensor))
            << "stage " << stage << " of " << stages << ", tensor " << tensor;
        heaviest = std::max(heaviest, held), sum += held;
      }
      EXPECT_LE(sum / stages, (stages > 1 ? 0.95 : 1) * heaviest);
    }
}

// All stages together hold what the formula for the model says and the last norm. A model whose tables are not tied has one
// table more.
TEST(PipelineFormulas, StagesAddUpToTheModel) {
  const TransformerShape shape{.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 51200, .sequence = 2048};
  const double tied = gpt_stage_parameters(shape, {.layers = 96, .first = true, .last = true}, 1);
  EXPECT_DOUBLE_EQ(tied, gpt_parameters(shape) + 2 * 12288);
  const double untied = gpt_stage_parameters(shape, {.layers = 96, .first = true, .last = true, .tied = false}, 1);
  EXPECT_DOUBLE_EQ(untied - tied, 12288.0 * 51200);
}

// The 175 B model of Korthikanti et al. with tensor 8 keeps 342 MiB per layer with sequence parallelism, 102 without the
// scores.
TEST(PipelineFormulas, FirstStageHoldsAllLayersAndTheEmbedding) {
  const TransformerShape shape{.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 51200, .sequence = 2048};
  constexpr double kMib = 1 << 20;
  const auto of = [&](FirstStage stage) {
    stage.tensor = 8, stage.microbatches = 64, stage.sequence_parallel = true;
    return first_stage_activation_bytes(shape, stage) / kMib;
  };
  const double dropout = 2048.0 * 12288 / 8 / kMib, ids = 8 * 2048 / kMib;
  EXPECT_DOUBLE_EQ(of({.pipeline = 8}), 96 * 342 + 8 * (dropout + ids));
  EXPECT_DOUBLE_EQ(of({.pipeline = 8, .saved = SavedActivations::AllButScores}), 96 * 102 + 8 * (dropout + ids));
  EXPECT_DOUBLE_EQ(of({.pipeline = 8, .chunks = 3}), 96 * (1 + 7.0 / 24) * 342 + 8 * (dropout + ids));
  EXPECT_DOUBLE_EQ(of({.pipeline = 8, .saved = SavedActivations::LayerInputs}), 96 * 48 / 8 + 342 + 8 * (dropout + ids));
  const double head = 4 * 2048.0 * 12288 * (1 + 51200.0 / 12288) / 8 / kMib;
  EXPECT_DOUBLE_EQ(of({.pipeline = 1}), 96 * 342 + dropout + ids + head);
  EXPECT_DOUBLE_EQ(of({.pipeline = 1, .context = 4}), of({.pipeline = 1}) / 4);
}

}  // namespace
}  // namespace trivet::autotune
