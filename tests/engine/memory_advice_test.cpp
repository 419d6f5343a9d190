#include "engine/memory_advice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

int64_t needs(const Config& config, int ranks) { return plan_of(config, ranks).heaviest().memory.total(); }

std::string advice(const Config& config, int ranks, int64_t bytes) {
  return what_would_fit(plan_of(config, ranks), model_of(config), bytes);
}

TEST(MemoryAdvice, NamesWhatFitsAndNothingElse) {
  const Config config = small_config();
  Config stage2 = config, stage3 = config;
  stage2.zero.stage = 2;
  stage3.zero.stage = 3;
  const int64_t of_stage2 = needs(stage2, 4), of_stage3 = needs(stage3, 4);
  ASSERT_LT(of_stage3, of_stage2);
  EXPECT_THAT(advice(config, 4, of_stage2), AllOf(StartsWith("what would fit: "), HasSubstr("zero_optimization.stage 2 ("),
                                                  HasSubstr("; or zero_optimization.stage 3 (")));
  EXPECT_THAT(advice(config, 4, of_stage2 - 1), Not(HasSubstr("zero_optimization.stage 2 (")));
}

TEST(MemoryAdvice, NamesTheLeastWhereNothingFits) {
  EXPECT_THAT(advice(small_config(), 4, 0),
              AllOf(StartsWith("the smallest config that was found needs "), HasSubstr(" GiB with "),
                    HasSubstr("zero_optimization.stage 3, activation_checkpointing.mode \"full\"")));
}

TEST(MemoryAdvice, HalvesTheMicrobatchAndKeepsTheGlobalBatch) {
  Config config = small_config();
  config.batch = {.train_batch_size = 24, .micro_batch_size = 12};
  Config half = config;
  half.batch = {.train_batch_size = 24, .micro_batch_size = 6};
  EXPECT_THAT(advice(config, 1, needs(half, 1)),
              AllOf(HasSubstr("train_micro_batch_size_per_gpu 6 ("), HasSubstr("train_micro_batch_size_per_gpu 3 (")));
}

// With a long sequence, what an MLP computes between its projections is most of the memory.
TEST(MemoryAdvice, NamesWhatShortensALongSequence) {
  Config config = small_config();
  config.device = DeviceChoice::Cuda;
  config.model.sequence_length = 4096;
  config.batch = {.train_batch_size = 1};
  Config sliced = config, all = config;
  sliced.mlp_slice_tokens = all.mlp_slice_tokens = 64;
  all.recompute = Recompute::Full, all.cpu_checkpointing = true;
  ASSERT_LT(needs(all, 1), needs(sliced, 1));
  EXPECT_THAT(advice(config, 1, needs(sliced, 1)), HasSubstr("activation_checkpointing.mlp_slice_tokens 64 ("));
  EXPECT_EQ(
      advice(config, 1, needs(all, 1)),
      fmt::format("what would fit: activation_checkpointing.mlp_slice_tokens 64, activation_checkpointing.mode \"full\" and "
                  "cpu_checkpointing true ({:.2f} GiB)",
                  static_cast<double>(needs(all, 1)) / (1 << 30)));
  config.device = DeviceChoice::Cpu;
  config.model.sequence_length = 128;
  EXPECT_THAT(advice(config, 1, 0), Not(AnyOf(HasSubstr("slice"), HasSubstr("cpu_checkpointing"))));
}

// One rank recomputes everything with microbatches of one sample, so no change needs less memory.
TEST(MemoryAdvice, NamesNoChangeThatSavesNothing) {
  Config config = small_config();
  config.recompute = Recompute::Full;
  EXPECT_EQ(advice(config, 1, 0), "use more ranks, a smaller model or offload");
}

TEST(MemoryAdvice, APlanFitsIntoExactlyWhatItNeeds) {
  const Config config = small_config();
  const Plan plan = plan_of(config, 1);
  const model::Model model = model_of(config);
  const int64_t total = plan.rank(0).memory.total();
  EXPECT_NO_THROW(check_fits(plan, model, 0, total, "cuda:0 Test"));
  EXPECT_THAT(
      [&] { check_fits(plan, model, 0, total - 1, "cuda:0 Test"); },
      testing::ThrowsMessage<OutOfMemoryError>(StartsWith("rank 0: the plan does not fit into cuda:0 Test, of which ")));
}

}  // namespace
}  // namespace trivet
