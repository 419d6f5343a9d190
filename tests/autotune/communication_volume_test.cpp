// The volumes that papers give for what ranks send, compared with what the engine's plan counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pipeline/passes/unshard_release.h"
#include "tests/engine/small_plan.h"

namespace trivet::autotune {
namespace {

using pipeline::UnshardRelease;

// psi parameters, n data ranks, m microbatches per step, b s h elements of activations of one microbatch, t tensor ranks.
// Volumes are in elements, for one rank and for rings, with the exact (n - 1) / n that papers leave out.

// The volume of a step on the data axis (ZeRO, Rajbhandari et al. 2020, section 7), in units of (n - 1) / n:
//
//   stage       reduced   gathered
//   0           2 psi                  all_reduce
//   1           psi       psi
//   2           m psi     psi          gradients leave with every microbatch
//   3           m psi     2 m psi      weights released after each use (Use)
//               m psi     m psi        kept from forward to backward (Microbatch)
//               m psi     psi          kept for the step (Step)
struct DataVolume {
  double reduced = 0, gathered = 0;
};
struct DataAxis {
  int zero_stage = 0;
  int64_t ranks = 1, microbatches = 1;
  pipeline::UnshardRelease release = pipeline::UnshardRelease::Use;  // stage 3; not Distance, which is between Use and Step
};

double gathers_of_stage3(const DataAxis& axis) {
  const double microbatches = static_cast<double>(axis.microbatches);
  switch (axis.release) {
    case pipeline::UnshardRelease::Use: return 2 * microbatches;
    case pipeline::UnshardRelease::Microbatch: return microbatches;
    default: return 1;
  }
}

DataVolume data_volume(const DataAxis& axis, double parameters) {
  const double sent = parameters * static_cast<double>(axis.ranks - 1) / static_cast<double>(axis.ranks),
               microbatches = static_cast<double>(axis.microbatches);
  switch (axis.zero_stage) {
    case 0: return {2 * sent, 0};
    case 1: return {sent, sent};
    case 2: return {microbatches * sent, sent};
    default: return {microbatches * sent, gathers_of_stage3(axis) * sent};
  }
}

// Elements on one rank, padding included, of all blocks or of the head alone.
double padded_elements(const Plan& plan, bool head_only = false) {
  double elements = 0;
  const auto& blocks = plan.ranks[0].layout.blocks;
  for (size_t block = head_only ? blocks.size() - 1 : 0; block < blocks.size(); ++block)
    for (const zero::FlatGroup& group : blocks[block].groups) elements += static_cast<double>(group.whole_elements);
  return elements;
}

// The head's forward and backward count as one use, so its parameters are gathered once.
TEST(CommunicationVolume, OfTheDataAxisIsThatOfThePlan) {
  Config config = small_config();
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.tied_embedding = false;  // a tied table is gathered for the head, too
  for (const auto& [bf16, gradients] : {std::pair{true, DType::BFloat16}, {true, DType::Float32}, {false, DType::Float32}})
    for (const int ranks : {1, 2, 3, 4})
      for (const int64_t microbatches : {1, 3})
        for (const int stage : {0, 1, 2, 3})
          for (const UnshardRelease release : {UnshardRelease::Use, UnshardRelease::Microbatch, UnshardRelease::Step}) {
            if (stage < 3 && release != UnshardRelease::Use) continue;  // weights are never released
            config.bf16.enabled = bf16;
            config.grad_accum_dtype = gradients;
            config.batch = {.micro_batch_size = 1, .gradient_accumulation_steps = microbatches};
            config.zero.stage = stage;
            config.zero.stage3_release = release;
            const Plan plan = plan_of(config, ranks);
            DataAxis axis{.zero_stage = stage, .ranks = ranks, .microbatches = microbatches, .release = release};
            DataVolume volume = data_volume(axis, padded_elements(plan));
            if (stage == 3 && release == UnshardRelease::Use)
              volume.gathered -=
                  data_volume(
                      {.zero_stage = 3, .ranks = ranks, .microbatches = microbatches, .release = UnshardRelease::Microbatch},
                      padded_elements(plan, true))
                      .gathered;
            const std::string name =
                fmt::format("{} ranks, {} microbatches, stage {}, {}", ranks, microbatches, stage, name_of(release));
            EXPECT_DOUBLE_EQ(static_cast<double>(plan.ranks[0].traffic_of("reduce").bytes_sent),
                             volume.reduced * static_cast<double>(size_of(gradients)))
                << name;
            EXPECT_DOUBLE_EQ(static_cast<double>(plan.ranks[0].traffic_of("gather").bytes_sent),
                             volume.gathered * (bf16 ? 2 : 4))
                << name;
          }
}

// 2 b s h / t elements cross each boundary, both directions together. An interleaved schedule with v chunks has v times as many
// boundaries, except after the last stage.
TEST(CommunicationVolume, BetweenStagesIsATensorRanksShareOfTheTokens) {
  Config config = small_config();
  config.parallel.pipeline = 2;
  const double microbatches = 12, activations = 1.0 * 32 * 64, bytes = 4;
  for (const int tensor : {1, 2}) {
    config.parallel.tensor = tensor;
    config.parallel.sequence_parallel = tensor > 1;
    for (const auto& [schedule, boundaries] : {std::pair{ScheduleKind::OneForwardOneBackward, 1},
                                               {ScheduleKind::Interleaved, 3},     // 0|1, 1|2 and 2|3: 2 ranks x 2 chunks
                                               {ScheduleKind::ZeroBubbleV, 2}}) {  // stages 1 and 2 are on one rank
      config.pipeline.schedule = schedule;
      const Plan plan = plan_of(config, 2 * tensor);
      const double sent = static_cast<double>(plan.rank(0).traffic_of("pipeline").bytes_sent +
                                              plan.rank(tensor).traffic_of("pipeline").bytes_sent);
      EXPECT_DOUBLE_EQ(sent, boundaries * microbatches * 2 * activations / tensor * bytes) << name_of(schedule) << tensor;
    }
  }
}

}  // namespace
}  // namespace trivet::autotune
