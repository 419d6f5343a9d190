// Makes timelines, costs and exposed communication of ranks from the recordings of a real run on all three axes.
#include "engine/timeline/timeline_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/world.h"
#include "engine/engine.h"

namespace trivet::timeline {
namespace {

using pipeline::Op;
using pipeline::Recording;
using testing::HasSubstr;

struct TimedRun {
  Plan plan;
  std::vector<std::vector<Recording>> recordings;
};

TimedRun run(const Config& config, int ranks, int steps) {
  const auto model = [&] { return model::build(model::with_vocabulary(config.model, 17)); };
  TimedRun run{make_plan(config, model(), ranks), std::vector<std::vector<Recording>>(ranks)};
  comm::run_threads(ranks, [&](comm::World& world) {
    Engine engine(run.plan, model(), world);
    const std::vector<int32_t> ids(config.model.sequence_length, 5);
    const ConstTensorView view{ids.data(), DType::Int32, {1, config.model.sequence_length}};
    const std::vector<Microbatch> batch(run.plan.batch.gradient_accumulation_steps, {view, view, 0});
    engine.record(true);
    for (int step = 0; step < steps; ++step) engine.train_batch(batch);
    run.recordings[world.rank()] = engine.take_recordings();
  });
  return run;
}

Config three_axes() {
  Config config;
  config.model.layers = 3;
  config.model.hidden_size = 32;
  config.model.heads = 2;
  config.model.sequence_length = 8;
  config.parallel.pipeline = 2;
  config.parallel.tensor = 2;
  config.batch.micro_batch_size = 1;
  config.batch.gradient_accumulation_steps = 4;
  config.zero.stage = 3;
  config.zero.overlap_comm = true;
  config.zero.stage3_param_persistence_threshold = 0;
  config.zero.stage3_max_reuse_distance = 0;
  return config;
}

size_t computations(const pipeline::Program& program) {
  return static_cast<size_t>(
      std::count_if(program.begin(), program.end(), [](const auto& i) { return pipeline::computes(i.op); }));
}

size_t computations(const std::vector<pipeline::TimedInstruction>& rank) {
  return static_cast<size_t>(
      std::count_if(rank.begin(), rank.end(), [](const auto& timed) { return pipeline::computes(timed.instruction.op); }));
}

// The time for which ranks wait for transfers after the program of a step, all ranks together.
double after_program(const TimedRun& run, size_t step) {
  double ms = 0;
  for (const auto& steps : run.recordings)
    for (const pipeline::Recording::Span& span : steps[step].spans)
      if (span.kind == pipeline::Recording::Kind::Wait && span.at == pipeline::Recording::kUpdate &&
          span.queue == pipeline::Queue::Send)
        ms += span.end - span.start;
  return ms;
}

TEST(TimelineReport, HasARowForEachRankOfThreeAxesAndCostsForEachBlock) {
  const TimedRun one = run(three_axes(), 8, 3);
  const TimelineReport report = make_timeline_report(one.plan, one.recordings);
  for (const StepTimes* side : {&report.measured, &report.simulated}) {
    ASSERT_EQ(side->timeline.ranks.size(), 8u);
    for (int rank = 0; rank < 8; ++rank)
      EXPECT_EQ(computations(side->timeline.ranks[rank]), computations(one.plan.rank(rank).programs.train));
    EXPECT_GT(side->timeline.makespan, report.update_ms);
    EXPECT_GT(side->timeline.bubble_fraction, 0);
    EXPECT_LT(side->timeline.bubble_fraction, 1);
    EXPECT_GT(side->exposed.axes[static_cast<size_t>(Axis::Pipeline)], 0);
  }
  EXPECT_GT(report.measured.exposed.axes[static_cast<size_t>(Axis::Data)] +
                report.measured.exposed.axes[static_cast<size_t>(Axis::Tensor)],
            0);
  double waited = 0;
  for (const auto& waits : report.measured.timeline.waits)
    for (const pipeline::TimedWait& wait : waits)
      if (wait.queue == pipeline::Queue::Send) waited += wait.end - wait.start;
  // The report shows one of the recorded steps; after its program, a rank may still wait until its last sends have arrived.
  std::vector<double> possible;
  for (size_t step = 0; step < one.recordings.front().size(); ++step)
    possible.push_back((waited + after_program(one, step)) / 8);
  const double exposed = report.measured.exposed.axes[static_cast<size_t>(Axis::Pipeline)];
  EXPECT_THAT(possible, testing::Contains(testing::DoubleNear(exposed, 1e-9))) << "the mean over the ranks";
  ASSERT_EQ(report.blocks.size(), 5u);
  EXPECT_EQ(report.blocks[0].name, "embedding");
  for (size_t block = 0; block + 1 < report.blocks.size(); ++block) {
    EXPECT_GT(report.blocks[block].ms.at(Op::Forward), 0);
    EXPECT_GT(report.blocks[block].ms.at(Op::Backward), 0);
  }
  EXPECT_GT(report.blocks.back().ms.at(Op::Loss), 0);
  EXPECT_THAT(summary(report), HasSubstr("ms measured and "));
}

TEST(TimelineReport, RecordingsSurviveTheWayToAnotherRank) {
  const TimedRun one = run(three_axes(), 4, 2);
  ASSERT_EQ(one.recordings[3].size(), 2u);
  EXPECT_EQ(from_text(to_text(one.recordings[3])), one.recordings[3]);
}

// The lengths of a rank's gathers in the report, if the gather of this instruction ran from 1 ms to 9 ms of the step on all
// ranks but one, which came at 6 ms.
std::vector<double> gather_lengths(const TimedRun& one, int gather, int late, int rank) {
  auto recordings = one.recordings;
  for (int r = 0; r < static_cast<int>(recordings.size()); ++r) {
    auto& step = recordings[r][0];
    std::erase_if(step.spans, [&](const Recording::Span& span) {
      return span.kind == Recording::Kind::Work && span.queue == pipeline::Queue::Gather && span.at == gather;
    });
    const double begin = one.recordings[0][0].begin;
    step.spans.push_back({Recording::Kind::Work, pipeline::Queue::Gather, gather, begin + (r == late ? 6 : 1), begin + 9});
  }
  const TimelineReport report = make_timeline_report(one.plan, recordings);
  std::vector<double> lengths;
  for (const pipeline::TimedInstruction& timed : report.measured.timeline.ranks[rank])
    if (timed.queue == pipeline::Queue::Gather) lengths.push_back(timed.end - timed.start);
  return lengths;
}

// One rank arrives 5 ms late at the gather of block 0. The wait is not part of the gather's cost on the other rank.
TEST(TimelineReport, AGatherBeginsWhenTheLastRankIsThere) {
  Config config = three_axes();
  config.parallel.pipeline = config.parallel.tensor = 1;
  const TimedRun one = run(config, 2, 1);
  const pipeline::Program& program = one.plan.ranks[0].programs.train;
  const auto gather = static_cast<int>(
      std::find_if(program.begin(), program.end(), [](const auto& i) { return i.op == Op::Unshard; }) - program.begin());
  for (const int late : {0, 1})
    EXPECT_THAT(gather_lengths(one, gather, late, 1 - late), testing::Contains(testing::DoubleNear(3, 1e-6)))
        << "late: rank " << late;
}

// With zero_hpz_partition_size 2, ranks 0 and 1 gather a block again without ranks 2 and 3, and do not wait for them.
TEST(TimelineReport, AGatherFromASecondCopyWaitsOnlyForRanksThatHaveIt) {
  Config config = three_axes();
  config.parallel.pipeline = config.parallel.tensor = 1;
  config.zero.zero_hpz_partition_size = 2;
  const TimedRun one = run(config, 4, 1);
  ASSERT_EQ(one.plan.sharding().secondary, 2);
  const pipeline::Program& program = one.plan.ranks[0].programs.train;
  std::vector<int> gathers;  // of block 1: the first, and one that follows
  for (size_t at = 0; at < program.size() && gathers.size() < 2; ++at)
    if (program[at].op == Op::Unshard && program[at].block == 1) gathers.push_back(static_cast<int>(at));
  ASSERT_EQ(gathers.size(), 2u);
  const auto has = [](double ms) { return testing::Contains(testing::DoubleNear(ms, 1e-6)); };
  const int late = 3;
  EXPECT_THAT(gather_lengths(one, gathers[0], late, 0), has(3)) << "all four ranks gather";
  EXPECT_THAT(gather_lengths(one, gathers[1], late, 0), has(8)) << "rank 3 has another copy";
  EXPECT_THAT(gather_lengths(one, gathers[1], late, 2), has(3)) << "rank 3 has the other half of this copy";
}

// For one step on one rank, the prediction is the sum of what the instructions took, and nothing else.
TEST(TimelineReport, WithoutOtherRanksAStepIsTheSumOfItsInstructions) {
  Config config = three_axes();
  config.parallel.pipeline = config.parallel.tensor = 1;
  config.zero.overlap_comm = false;  // nothing runs in parallel with the program
  const TimedRun one = run(config, 1, 1);
  const TimelineReport report = make_timeline_report(one.plan, one.recordings);
  const Recording& recording = one.recordings[0][0];
  double sum = recording.update_ms() + recording.spans.front().start - recording.begin;
  for (const Recording::Span& span : recording.spans)
    if (span.kind == Recording::Kind::Step) sum += span.end - span.start;
  EXPECT_NEAR(report.simulated.timeline.makespan, sum, 1e-6);
  EXPECT_LE(sum, report.measured.timeline.makespan + 1e-6);
  EXPECT_EQ(report.measured.exposed.axes[static_cast<size_t>(Axis::Pipeline)], 0);
  EXPECT_EQ(report.simulated.exposed.axes[static_cast<size_t>(Axis::Pipeline)], 0);
}

}  // namespace
}  // namespace trivet::timeline
