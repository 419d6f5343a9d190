// What recomputation costs and saves according to the plan. tests/equivalence checks that it changes no bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "core/error.h"
#include "model/embedding.h"
#include "model/linear.h"
#include "model/lm_head.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Recompute, AppliesToTheFirstOfEveryNLayersAndNeverToEmbeddingOrHead) {
  Config config = small_config();
  config.batch.train_batch_size = 1;
  config.recompute = Recompute::Full;
  config.recompute_every = 2;  // blocks 0 to 4 are the embedding, three layers and the head
  EXPECT_EQ(
      to_string(plan_of(config, 1).ranks[0].programs.train),
      "0.0F0 0.1F0 0.2F0 0.3F0 0.4L0 0.4REDUCE 0.3R0 0.3B0 0.3REDUCE 0.2B0 0.2REDUCE 0.1R0 0.1B0 0.1REDUCE 0.0B0 0.0REDUCE "
      "0SUM_LOSS");
  config.recompute = Recompute::Selective;
  EXPECT_EQ(plan_of(config, 1).ranks[0].programs.recompute,
            (std::vector{Recompute::None, Recompute::Selective, Recompute::None, Recompute::Selective, Recompute::None}));
  EXPECT_THAT(to_text(plan_of(config, 1)), HasSubstr("\nrecompute selective, the first of every 2 layers\n"));
}

// Korthikanti et al. 2022: the forward does not keep the results of attention's core, out[B, S, H / t] and the float32
// log_sum_exp[B, N / t, S], and the backward runs the core's forward again. That saves all cores, except the one whose backward
// is running when the peak occurs.
TEST(Recompute, SelectiveSavesWhatAttentionsCoreMakesAndComputesItAgain) {
  for (const bool bf16 : {false, true})
    for (const auto& [schedule, pipeline, tensor] : {std::tuple{ScheduleKind::OneForwardOneBackward, 1, 1},
                                                     {ScheduleKind::GPipe, 1, 1},
                                                     {ScheduleKind::OneForwardOneBackward, 2, 2},
                                                     {ScheduleKind::GPipe, 2, 1}}) {
      Config config = small_config();
      config.model.layers = 6;
      config.bf16.enabled = bf16;
      config.pipeline.schedule = schedule;
      config.parallel.pipeline = pipeline;
      config.parallel.tensor = tensor;
      const Plan kept = plan_of(config, pipeline * tensor);
      config.recompute = Recompute::Selective;
      const Plan again = plan_of(config, pipeline * tensor);
      const int64_t sequence = 32, hidden = 64 / tensor, heads = 4 / tensor, microbatches = 12;
      const int64_t core_bytes = sequence * hidden * (bf16 ? 2 : 4) + heads * sequence * 4;
      const double core_flops = 2.0 * static_cast<double>(sequence * sequence * hidden);
      for (size_t rank = 0; rank < kept.ranks.size(); ++rank) {
        const int stage = kept.ranks[rank].coordinates[Axis::Pipeline];
        const int first = std::max(kept.stages.first_blocks[stage], 1);    // not the embedding
        const int end = std::min(kept.stages.first_blocks[stage + 1], 7);  // nor the head
        const int64_t in_flight = schedule == ScheduleKind::GPipe ? microbatches : pipeline - stage;
        const int64_t cores = (end - first) * in_flight, less = kept.ranks[rank].memory[MemoryCategory::Activations] -
                                                                again.ranks[rank].memory[MemoryCategory::Activations];
        const std::string what =
            fmt::format("{}, pipeline rank {} of {}, tensor {}", name_of(schedule), stage, pipeline, tensor);
        EXPECT_LE(less, cores * core_bytes) << what;
        EXPECT_GE(less, (cores - 1) * core_bytes) << what;
        EXPECT_DOUBLE_EQ(again.ranks[rank].step_counters.flops - kept.ranks[rank].step_counters.flops,
                         static_cast<double>((end - first) * microbatches) * core_flops);
      }
    }
}

// Between the forward and the recomputation of a block a rank keeps 1/t of its input. That saves (t - 1)/t of B S H, except for
// the one input that is gathered while its block is recomputed. The gathers send as much.
TEST(Recompute, PartitionedInputsSaveMemoryAndSendAsTheFormulaSays) {
  for (const bool bf16 : {false, true})
    for (const int64_t tensor : {2, 4})
      for (const int64_t every : {1, 3}) {
        Config config = small_config();
        config.model.layers = 6;
        config.bf16.enabled = bf16;
        config.parallel.tensor = tensor;
        config.pipeline.schedule = ScheduleKind::GPipe;
        config.recompute = Recompute::Full;
        config.recompute_every = every;
        const RankPlan whole = plan_of(config, static_cast<int>(tensor)).ranks.back();
        config.partition_activations = true;
        const Plan plan = plan_of(config, static_cast<int>(tensor));
        EXPECT_THAT(to_text(plan), HasSubstr("kept inputs split over the tensor axis\n"));
        const RankPlan& part = plan.ranks.back();
        const int64_t blocks = 6 / every, microbatches = 12, input_bytes = 32 * 64 * (bf16 ? 2 : 4);
        const int64_t saved = blocks * microbatches * (input_bytes - input_bytes / tensor);
        const int64_t less = whole.memory[MemoryCategory::Activations] - part.memory[MemoryCategory::Activations];
        EXPECT_LE(less, saved);
        EXPECT_GE(less, saved - input_bytes);
        EXPECT_EQ(part.traffic_of("tensor").bytes_sent - whole.traffic_of("tensor").bytes_sent, saved);
        EXPECT_EQ(part.traffic_of("tensor").operations - whole.traffic_of("tensor").operations, blocks * microbatches);
      }
}

TEST(Recompute, RefusesPartitionedInputsThatTensorRanksDoNotDivide) {
  Config config = small_config();
  config.parallel.tensor = 4;
  config.batch = {.train_batch_size = 4, .micro_batch_size = 2};
  config.recompute = Recompute::Full;
  config.partition_activations = true;
  model::Model own;
  own.sample = {.input = {5}, .targets = {5}, .input_values = 97, .classes = 97};
  own.names = {"embedding", "mixer", "head"};
  own.layers.push_back(
      std::make_unique<model::Embedding>("embedding", model::Embedding::Options{.vocabulary = 97, .hidden = 6}));
  own.layers.push_back(std::make_unique<model::Linear>(model::Linear::Options{.in = 6, .out = 6}));
  own.layers.push_back(std::make_unique<model::LmHead>(model::LmHead::Options{.vocabulary = 97, .hidden = 6},
                                                       std::make_unique<model::RmsNorm>(6, 1e-5)));
  const auto plan = [&] { make_plan(config, own, 4); };
  EXPECT_NO_THROW(plan());  // 2 x 5 x 6 = 4 x 15
  config.batch.micro_batch_size = 1;
  EXPECT_THAT(plan,
              ThrowsMessage<ConfigError>(HasSubstr(
                  "activation_checkpointing.partition_activations: true needs block inputs that split evenly over 4 "
                  "tensor ranks, but the input of mixer is [1, 5, 6]; use false, or a train_micro_batch_size_per_gpu that is a "
                  "multiple of 2")));
}

}  // namespace
}  // namespace trivet
