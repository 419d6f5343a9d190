// Closed formulas for pipelines, compared with the simulator and the plan.
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/schedules/schedules.h"
#include "pipeline/validate.h"
#include "tests/autotune/transformer_formulas.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

//   p ranks, rank i from 0, m microbatches, v chunks (stages) per rank; h hidden, V vocabulary, s sequence, t tensor ranks

// The most pairs of stage and microbatch that rank i holds at a time, from F to the B that returns the gradient. A stage is a
// v-th of a rank.
//
//   gpipe        m
//   1f1b, zb-h1  min(m, p - i)                        (Narayanan et al. 2021; Qi et al. 2023)
//   zb-2p        min(m, 2 (p - i) - 1)
//   interleaved  2 (p - i - 1) + (v - 1) p + 1        for m > p
//
// zb-v balances its ranks by weight gradients and has no such formula.
int64_t most_in_flight(ScheduleKind kind, int64_t ranks, int64_t rank, int64_t microbatches, int64_t chunks) {
  const int64_t behind = ranks - rank;
  switch (kind) {
    case ScheduleKind::GPipe: return microbatches;
    case ScheduleKind::OneForwardOneBackward:
    case ScheduleKind::ZeroBubbleH1: return std::min(microbatches, behind);
    case ScheduleKind::ZeroBubble2p: return std::min(microbatches, 2 * behind - 1);
    default: return 2 * (behind - 1) + (chunks - 1) * ranks + 1;  // interleaved
  }
}

// Parameters of a GPT's stage on one tensor rank, including biases: 12 h^2 / t + (6 + 7 / t) h per layer; the token embedding,
// h V / t, on the first and on the last stage; positions, h s, on the first; the last norm, 2 h, on the last. The rank that
// holds most must fit, and it holds more than the mean over ranks.
struct StageOfGpt {
  int64_t layers = 0;
  bool first = false, last = false;
};
double gpt_stage_parameters(const TransformerShape& shape, const StageOfGpt& stage, int64_t tensor) {
  const double h = static_cast<double>(shape.hidden), t = static_cast<double>(tensor);
  const double layer = 12 * h * h / t + (6 + 7 / t) * h, table = h * static_cast<double>(shape.vocabulary) / t;
  const int tables = stage.first && stage.last ? 1 : stage.first + stage.last;
  return static_cast<double>(stage.layers) * layer + tables * table +
         (stage.first ? h * static_cast<double>(shape.sequence) : 0) + (stage.last ? 2 * h : 0);
}

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
            EXPECT_EQ(peaks[rank], most_in_flight(kind, ranks, rank, microbatches, of_a_rank))
                << name_of(kind) << ", rank " << rank << " of " << ranks << ", " << of_a_rank << " chunks";
        }
}

// If a microbatch counts as held until the gradients of weights, ZB-H1 holds p microbatches on every rank.
TEST(PipelineFormulas, ZeroBubbleHoldsAsMuchOnEveryRankUntilTheWeights) {
  for (const int ranks : {2, 4, 8})
    for (const int peak : pipeline::validate(pipeline::zero_bubble_h1(ranks, 4 * ranks), 4 * ranks).peak_microbatches)
      EXPECT_EQ(peak, ranks);
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
        const bool first = stage == 0, last = stage + 1 == stages;
        const int blocks = plan.stages.first_blocks[stage + 1] - plan.stages.first_blocks[stage];
        double held = 0;
        const RankPlan& rank = plan.rank(plan.mesh.ranks_at({{Axis::Pipeline, stage}}).front());
        for (const zero::BlockLayout& block : rank.layout.blocks)
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

}  // namespace
}  // namespace trivet::autotune
