// Validator, simulator and executor agree: on random pipelines the real executor runs each rank's program in order, and nothing
// happens before the events that it waits for in the event graph.
#include "engine/timeline/recorder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "comm/world.h"
#include "engine/engine.h"
#include "pipeline/measure.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/work_index.h"

namespace trivet {
namespace {

using namespace pipeline;

struct Layout {
  ScheduleKind kind = ScheduleKind::OneForwardOneBackward;
  int ranks = 1, microbatches = 1, chunks = 1, data = 1, stage = 0;
  bool overlap = true, tied = false, recompute = false;
  UnshardRelease release = UnshardRelease::Use;

  std::string text() const {
    return fmt::format("{} P {} M {} V {} data {} stage {} overlap {} tied {} recompute {} release {}", name_of(kind), ranks,
                       microbatches, chunks, data, stage, overlap, tied, recompute, name_of(release));
  }
};

Layout draw(std::mt19937& random) {
  const auto number = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  Layout layout;
  constexpr auto kinds = all_values<ScheduleKind>();
  layout.kind = kinds[number(0, static_cast<int>(kinds.size()) - 1)];
  layout.ranks = number(1, 4);
  layout.microbatches = number(1, 6);
  layout.chunks = layout.kind == ScheduleKind::Interleaved ? number(2, 3) : traits_of(layout.kind).chunks;
  layout.data = number(1, 3) == 1 ? 2 : 1;
  layout.stage = number(0, 3);
  layout.overlap = number(0, 2) > 0;
  layout.tied = number(0, 1) == 1;
  layout.recompute = number(0, 3) == 0;
  layout.release = EnumNames<UnshardRelease>::table[number(0, 3)].second;
  return layout;
}

Config config_of(const Layout& layout) {
  Config config;
  config.model.layers = layout.ranks * layout.chunks;
  config.model.hidden_size = 16;
  config.model.heads = 2;
  config.model.sequence_length = 4;
  config.model.tied_embedding = layout.tied;
  config.parallel.pipeline = layout.ranks;
  config.pipeline.schedule = layout.kind;
  config.pipeline.chunks = layout.kind == ScheduleKind::Interleaved ? layout.chunks : 0;
  config.batch.micro_batch_size = 1;
  config.batch.gradient_accumulation_steps = layout.microbatches;
  config.zero.stage = layout.stage;
  config.zero.overlap_comm = layout.overlap;
  config.zero.stage3_param_persistence_threshold = 100;
  config.zero.stage3_max_reuse_distance = 2000;
  config.zero.stage3_release = layout.release;
  config.recompute = layout.recompute ? Recompute::Full : Recompute::None;
  return config;
}

struct RecordedRun {
  Plan plan;
  std::vector<Recording> recordings;  // [world rank] of one step
};

RecordedRun run(const Config& config, int ranks) {
  const auto model = [&] { return model::build(model::with_vocabulary(config.model, 17)); };
  RecordedRun run{make_plan(config, model(), ranks), std::vector<Recording>(ranks)};
  comm::run_threads(ranks, [&](comm::World& world) {
    Engine engine(run.plan, model(), world);
    const std::vector<int32_t> ids(config.model.sequence_length, 5);
    const ConstTensorView view{ids.data(), DType::Int32, {1, config.model.sequence_length}};
    const std::vector<Microbatch> batch(run.plan.batch.gradient_accumulation_steps, {view, view, 0});
    engine.train_batch(batch);
    EXPECT_TRUE(engine.take_recordings().empty());
    engine.record(true);
    engine.train_batch(batch);
    engine.evaluate(batch);
    const auto steps = engine.take_recordings();
    ASSERT_EQ(steps.size(), 1u);
    run.recordings[world.rank()] = steps.front();
  });
  return run;
}

// The instructions of the program run one at a time, in order, within the step.
void expect_in_order(const Program& program, const Recording& recording) {
  size_t next = 0;
  double free = recording.begin;
  for (const Recording::Span& span : recording.spans) {
    if (span.kind != Recording::Kind::Step) continue;
    ASSERT_EQ(static_cast<size_t>(span.at), next++);
    EXPECT_GE(span.start, free);
    EXPECT_GE(span.end, span.start);
    free = span.end;
  }
  EXPECT_EQ(next, program.size());
  EXPECT_LE(free, recording.program_end);
  EXPECT_LE(recording.program_end, recording.end);
}

std::string describe(const Schedule& schedule, const pipeline::Event& event) {
  return fmt::format("{} of rank {} (queue {})", to_string(schedule[event.rank][event.at]), event.rank,
                     static_cast<int>(event.queue));
}

void expect_waits_kept(const Schedule& schedule, const RecordedStep& step, Overlap overlap) {
  const EventGraph graph = event_graph(schedule, WorkIndex(schedule, count_microbatches(schedule)), overlap);
  const std::vector<Interval> times = measured_times(schedule, graph, step);
  for (const auto& [earlier, later] : graph.waits) {
    const pipeline::Event &before = graph.events[earlier], &after = graph.events[later];
    if (before.rank < 0 || after.rank < 0) continue;
    EXPECT_GE(times[later].start, times[earlier].end)
        << describe(schedule, after) << " waits for " << describe(schedule, before);
  }
}

TEST(Recorder, TheExecutorKeepsTheOrderOfProgramsAndOfTheEventGraph) {
  std::mt19937 random{2025};
  const char* count = std::getenv("TRIVET_RANDOM_LAYOUTS");  // 10,000 take a minute and a half
  const int layouts = count ? std::atoi(count) : 300;
  for (int n = 0; n < layouts && !testing::Test::HasFailure(); ++n) {
    const Layout layout = draw(random);
    SCOPED_TRACE(layout.text());
    const RecordedRun one = run(config_of(layout), layout.ranks * layout.data);
    for (int data = 0; data < layout.data; ++data) {
      Schedule schedule;
      RecordedStep step;
      for (const int rank : one.plan.mesh.ranks_at({{Axis::Data, data}})) {
        schedule.push_back(one.plan.rank(rank).programs.train);
        step.push_back(one.recordings[rank]);
        expect_in_order(schedule.back(), step.back());
      }
      expect_waits_kept(schedule, step, layout.overlap ? Overlap::Queues : Overlap::None);
    }
  }
}

}  // namespace
}  // namespace trivet
