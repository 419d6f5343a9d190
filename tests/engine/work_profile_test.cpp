// What a step computes, block by block: counts against closed formulas, times from made-up recordings, and the memory of
// phases.
#include "engine/timeline/work_profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"

namespace trivet::timeline {
namespace {

using pipeline::Op;
using pipeline::Queue;
using pipeline::Recording;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kHidden = 64, kTokens = 32, kVocabulary = 97;

// A GPT block multiplies each token by 12 H^2 weights, and half of its S^2 scores by 2 H numbers.
double products_of_block(double tokens) { return tokens * 12 * kHidden * kHidden; }
double attention_of_block(double tokens) { return tokens * tokens * kHidden; }

WorkProfile work_of_step(const Config& config, int ranks, int64_t step = 0) {
  const Plan plan = plan_of(config, ranks);
  return count_work(plan, model_of(config), {.step = step});
}

TEST(WorkProfile, CountsTheOperationsOfEachBlock) {
  const WorkProfile profile = work_of_step(small_config(), 2);
  const double microbatches = 6;
  ASSERT_EQ(profile.blocks.size(), 5u);
  EXPECT_EQ(profile.blocks[0].name, "embedding");
  EXPECT_EQ(profile.blocks[0].forward.macs, 0);
  for (size_t block = 1; block <= 3; ++block) {
    const BlockProfile& b = profile.blocks[block];
    EXPECT_EQ(b.forward.macs, microbatches * (products_of_block(kTokens) + attention_of_block(kTokens))) << b.name;
    EXPECT_EQ(b.backward.macs, microbatches * (2 * products_of_block(kTokens) + 2.5 * attention_of_block(kTokens))) << b.name;
    EXPECT_EQ(b.recompute.macs, 0);
    EXPECT_GT(b.forward.flops, 2 * b.forward.macs);  // norms and activations, too
    EXPECT_LT(b.forward.flops, 2.1 * b.forward.macs);
    EXPECT_EQ(b.kernels.at("matmul").macs, microbatches * products_of_block(kTokens));
    EXPECT_EQ(b.kernels.at("attention").macs, microbatches * attention_of_block(kTokens));
    EXPECT_EQ(b.parameters, 12 * kHidden * kHidden + 13 * kHidden);
  }
  const BlockProfile& head = profile.blocks[4];
  EXPECT_EQ(head.forward.macs, microbatches * kTokens * kHidden * kVocabulary);
  EXPECT_EQ(head.backward.macs, 2 * microbatches * kTokens * kHidden * kVocabulary);
}

TEST(WorkProfile, StagesCountTheirBlocksAndTensorRanksTheirParts) {
  const WorkProfile one = work_of_step(small_config(), 1);
  Config stages = small_config();
  stages.parallel.pipeline = 2;
  const WorkProfile two_stages = work_of_step(stages, 2);
  Config tensor = small_config();
  tensor.parallel.tensor = 2;
  const WorkProfile halves = work_of_step(tensor, 2);
  for (size_t block = 0; block < one.blocks.size(); ++block) {
    EXPECT_EQ(two_stages.blocks[block].forward.macs, one.blocks[block].forward.macs) << block;
    EXPECT_EQ(two_stages.blocks[block].backward.macs, one.blocks[block].backward.macs) << block;
    EXPECT_EQ(two_stages.blocks[block].parameters, one.blocks[block].parameters) << block;
  }
  for (size_t block = 1; block <= 3; ++block)
    EXPECT_EQ(halves.blocks[block].forward.macs, one.blocks[block].forward.macs / 2) << block;
}

TEST(WorkProfile, RecomputationIsCountedByItself) {
  Config config = small_config();
  config.recompute = Recompute::Full;
  const WorkProfile profile = work_of_step(config, 2), kept = work_of_step(small_config(), 2);
  const double tokens = 12 / 2 * 32, down = tokens * 4 * 64 * 64;  // nothing of a block's backward reads its output
  for (size_t block = 1; block <= 3; ++block) {
    EXPECT_EQ(profile.blocks[block].recompute.macs, profile.blocks[block].forward.macs - down);
    EXPECT_EQ(profile.blocks[block].backward.macs, kept.blocks[block].backward.macs);
  }
}

TEST(WorkProfile, CountsTheSequencesOfTheStep) {
  Config config = small_config();
  config.curriculum.enabled = true;
  config.curriculum.min_difficulty = 8;
  config.curriculum.max_difficulty = 32;
  config.curriculum.total_steps = 10;
  config.curriculum.difficulty_step = 8;
  EXPECT_EQ(work_of_step(config, 2, 0).blocks[1].forward.macs, 6 * (products_of_block(8) + attention_of_block(8)));
  EXPECT_EQ(work_of_step(config, 2, 20).blocks[1].forward.macs, 6 * (products_of_block(32) + attention_of_block(32)));
}

// Each instruction that computes takes 3 ms, of which it waits 1 for layers. The optimizer takes 5 ms, of which it waits 2.
Recording made_up(const pipeline::Program& program, double factor) {
  Recording recording;
  double now = 100;
  recording.begin = now;
  for (size_t at = 0; at < program.size(); ++at) {
    const int place = static_cast<int>(at);
    const double ms = computes(program[at].op) ? 3 * factor : 0.5 * factor;
    recording.spans.push_back({Recording::Kind::Step, Queue::Compute, place, now, now + ms});
    if (computes(program[at].op)) {
      recording.spans.push_back({Recording::Kind::Wait, pipeline::queue_of(Axis::Tensor), place, now, now + factor});
      recording.spans.push_back({Recording::Kind::Work, Queue::Reduce, place, now, now + ms});
    }
    now += ms;
  }
  recording.program_end = now;
  recording.spans.push_back({Recording::Kind::Wait, Queue::Gather, Recording::kUpdate, now, now + 2 * factor});
  recording.end = now + 5 * factor;
  return recording;
}

struct Measured {
  Plan plan;
  WorkProfile profile;
  std::vector<Recording> recordings;
};

// Two ranks; the second takes three times as long.
Measured measured(const Config& config) {
  Measured m{plan_of(config, 2), {}, {}};
  m.profile = count_work(m.plan, model_of(config), {});
  for (const int rank : {0, 1}) m.recordings.push_back(made_up(m.plan.rank(rank).programs.train, rank == 0 ? 1 : 3));
  add_times(m.profile, m.plan, m.recordings);
  return m;
}

TEST(WorkProfile, TimesAreMeansOverTheRanksWithoutWaits) {
  const Measured m = measured(small_config());
  for (size_t block = 0; block <= 3; ++block) {
    EXPECT_DOUBLE_EQ(m.profile.blocks[block].forward.ms, 6 * (2 + 6) / 2.0) << block;
    EXPECT_DOUBLE_EQ(m.profile.blocks[block].backward.ms, 6 * (2 + 6) / 2.0) << block;
  }
  const BlockProfile& head = m.profile.blocks[4];  // one instruction for both
  EXPECT_DOUBLE_EQ(head.forward.ms + head.backward.ms, 6 * (2 + 6) / 2.0);
  EXPECT_DOUBLE_EQ(head.forward.ms / head.backward.ms, head.forward.flops / head.backward.flops);
  EXPECT_DOUBLE_EQ(m.profile.update_ms, (5 + 15) / 2.0);
  EXPECT_DOUBLE_EQ(m.profile.step_ms, m.recordings[1].end - m.recordings[1].begin);
}

TEST(WorkProfile, TimesOfAStageAreThoseOfItsRanks) {
  Config config = small_config();
  config.parallel.pipeline = 2;
  const Measured m = measured(config);
  EXPECT_DOUBLE_EQ(m.profile.blocks[0].forward.ms, 12 * 2);
  EXPECT_DOUBLE_EQ(m.profile.blocks[3].forward.ms, 12 * 6);
}

TEST(WorkProfile, BreaksDownTheTimeOfAStep) {
  const Measured m = measured(small_config());
  // Per rank and unit: 24 instructions forward, 6 losses, 24 backward, of which each waits 1 ms.
  const pipeline::Program& program = m.plan.rank(0).programs.train;
  const double others = 0.5 * static_cast<double>(program.size() - 54), mean = 2;
  EXPECT_EQ(
      breakdown_of(m.plan, m.recordings),
      fmt::format("backward {:.2f}, forward {:.2f}, loss {:.2f}, waits: data {:.2f}, tensor {:.2f}, update {:.2f}, other "
                  "{:.2f}, step {:.2f} ms",
                  48 * mean, 48 * mean, 12 * mean, 2 * mean, 54 * mean, 3 * mean, others * mean, (3 * 54 + others + 5) * mean));
}

std::string line_with(const std::vector<std::string>& lines, const std::string& start) {
  for (const std::string& line : lines)
    if (line.starts_with(start)) return line;
  return "";
}

TEST(WorkReport, HasTotalsTopModulesAndEveryBlock) {
  const Measured m = measured(small_config());
  const std::vector<std::string> lines = report_of(m.profile, m.plan, 7);
  EXPECT_EQ(lines[0], "step 7, data 2, microbatch 1 x accumulation 6, per rank");
  EXPECT_THAT(line_with(lines, "forward"), HasSubstr("30.68 M MACs"));
  EXPECT_THAT(line_with(lines, "optimizer"), HasSubstr("optimizer 10.000 ms, whole step "));
  EXPECT_THAT(line_with(lines, "depth 1"), HasSubstr("MACs: transformer_block "));
  EXPECT_THAT(line_with(lines, "depth 2"), HasSubstr("MACs: matmul "));
  EXPECT_THAT(line_with(lines, "model"), HasSubstr("100.0%"));
  EXPECT_THAT(line_with(lines, "  blocks.2"), HasSubstr("32.0%"));
  EXPECT_THAT(line_with(lines, "    attention"), HasSubstr("393.22 k MACs"));
}

TEST(WorkReport, ObeysDepthTopModulesAndDetailed) {
  Config config = small_config();
  config.flops_profiler.module_depth = 1;
  config.flops_profiler.top_modules = 2;
  Measured m = measured(config);
  std::vector<std::string> lines = report_of(m.profile, m.plan, 1);
  EXPECT_EQ(line_with(lines, "depth 2"), "");
  EXPECT_EQ(line_with(lines, "    attention"), "");
  EXPECT_THAT(line_with(lines, "depth 1"), testing::ContainsRegex("MACs: [a-z_]+ [0-9.]+ M, [a-z_]+ [0-9.]+ M;"));
  EXPECT_THAT(line_with(lines, "  blocks.0"), HasSubstr("blocks.0"));
  config.flops_profiler.detailed = false;
  m = measured(config);
  EXPECT_EQ(line_with(report_of(m.profile, m.plan, 1), "  blocks.0"), "");
  config.flops_profiler.module_depth = 0;
  m = measured(config);
  EXPECT_EQ(line_with(report_of(m.profile, m.plan, 1), "depth 1"), "");
}

TEST(MemoryPhases, KeepTheMostThatIsInUseInEachPhase) {
  MemoryMeter meter;
  meter.add(MemoryCategory::Parameters, 1000);
  Arena activations("a", host_allocator(), meter, MemoryCategory::Activations, 4096);
  Arena buffers("b", host_allocator(), meter, MemoryCategory::Buffers, 4096);
  MemoryPhases phases(meter, activations, buffers);
  phases.begin();
  {
    const ScopedTensor kept(activations, DType::UInt8, {128});
    phases.after(Op::Forward);
    const ScopedTensor more(activations, DType::UInt8, {64}), gathered(buffers, DType::UInt8, {512});
    phases.after(Op::Unshard);  // still forward
  }
  phases.after(Op::Backward);
  const ScopedTensor staged(buffers, DType::UInt8, {256});
  phases.end();
  EXPECT_EQ(phases.most(MemoryPhase::Forward)[MemoryCategory::Activations], 192);
  EXPECT_EQ(phases.most(MemoryPhase::Forward)[MemoryCategory::Buffers], 512);
  EXPECT_EQ(phases.most_together(MemoryPhase::Forward), 1000 + 192 + 512);
  EXPECT_EQ(phases.most_together(MemoryPhase::Recompute), 0);
  EXPECT_EQ(phases.most_together(MemoryPhase::Backward), 1000);
  EXPECT_EQ(phases.most(MemoryPhase::Update)[MemoryCategory::Buffers], 256);
  EXPECT_THAT(phases.table(),
              ElementsAre(StartsWith("most in"), StartsWith("forward"), StartsWith("backward"), StartsWith("update")));
  phases.begin();
  phases.after(Op::Forward);
  EXPECT_EQ(phases.most_together(MemoryPhase::Forward), 1000 + 256);
}

// A block keeps its activations from its forward to its backward, so the most is in use when the last block has run forward,
// and after a step nothing is.
TEST(MemoryPhases, OfAStepOfAnEngine) {
  for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
    Config config = small_config();
    config.recompute = recompute;
    comm::run_threads(2, [&](comm::World& world) {
      Engine engine(plan_of(config, 2), model_of(config), world);
      const std::vector<int32_t> ids(32, 5);
      const ConstTensorView view{ids.data(), DType::Int32, {1, 32}};
      const std::vector<Microbatch> batch(6, {view, view, 0});
      engine.train_batch(batch);
      EXPECT_EQ(engine.memory_phases().most_together(MemoryPhase::Forward), 0);  // nobody asked
      engine.watch_memory(true);
      engine.train_batch(batch);
      const MemoryPhases& phases = engine.memory_phases();
      const MemoryBytes& planned = engine.plan().rank(world.rank()).memory;
      const int64_t forward = phases.most(MemoryPhase::Forward)[MemoryCategory::Activations];
      EXPECT_GE(forward, 3 * 32 * 64 * 4);  // at least the inputs of the blocks
      EXPECT_LE(forward, planned[MemoryCategory::Activations]);
      EXPECT_EQ(phases.most(MemoryPhase::Update)[MemoryCategory::Activations], 0);
      for (const MemoryPhase phase : {MemoryPhase::Forward, MemoryPhase::Backward, MemoryPhase::Update})
        for (const MemoryCategory fixed : {MemoryCategory::Parameters, MemoryCategory::Optimizer})
          EXPECT_EQ(phases.most(phase)[fixed], planned[fixed]) << name_of(phase);
      EXPECT_EQ(phases.most_together(MemoryPhase::Recompute) > 0, recompute == Recompute::Full);
    });
  }
}

}  // namespace
}  // namespace trivet::timeline
