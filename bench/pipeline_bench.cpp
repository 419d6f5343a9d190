// Compares the time of a step with what the simulator predicts. Two ranks run as threads with one kernel thread each; recorded
// and unrecorded steps alternate. The simulator gets the costs of the instructions in each recorded step, and the median of its
// results is the prediction for the unrecorded ones:
//
//   pipeline_bench [--pairs N] [--layers N] [--hidden N] [--microbatches N] [--only TEXT]    default: 12 pairs, 6, 256, 8, all
//
// A row shows the predicted and the measured (median) ms of a step and their ratio; the bubble and what a rank waits for
// (pipeline, data: ms per step, mean over the ranks), both as predicted / measured in the recorded step of median length; the
// optimizer step; and the share of the machine's processor time that other programs took meanwhile. If that is more than a few
// per cent, the figures mean little.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/median.h"
#include "engine/engine.h"
#include "engine/timeline/timeline_report.h"

namespace trivet {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int pairs = 12, layers = 6, hidden = 256, microbatches = 8;
  std::string only;
};

struct Layout {
  std::string name;
  int pipeline, zero_stage;
  ScheduleKind schedule;
};

std::vector<Layout> layouts() {
  std::vector<Layout> list;
  for (ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved,
                            ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubbleV})
    list.push_back({fmt::format("pipeline 2, {}", name_of(kind)), 2, 0, kind});
  // On one data rank a shard is the whole, so every stage runs the program of stage 0: these rows show how much runs differ.
  for (int stage : {1, 2, 3})
    list.push_back({fmt::format("pipeline 2, 1f1b, ZeRO-{}", stage), 2, stage, ScheduleKind::OneForwardOneBackward});
  for (int stage : {0, 1, 2, 3}) list.push_back({fmt::format("data 2, ZeRO-{}", stage), 1, stage, ScheduleKind::GPipe});
  return list;
}

Config config_of(const Layout& layout, const Options& options) {
  Config config;
  config.source = "pipeline_bench";
  config.model.layers = options.layers;
  config.model.hidden_size = options.hidden;
  config.model.heads = 4;
  config.model.sequence_length = 256;
  config.parallel.pipeline = layout.pipeline;
  config.pipeline.schedule = layout.schedule;
  config.batch.micro_batch_size = 1;
  config.batch.gradient_accumulation_steps = layout.pipeline == 2 ? options.microbatches : options.microbatches / 2;
  config.zero.stage = layout.zero_stage;
  config.zero.overlap_comm = layout.zero_stage == 3;
  config.zero.stage3_max_reuse_distance = 0;  // weights are gathered before every use
  return config;
}

// Processor time in seconds, of all processes and of this one.
struct ProcessorTime {
  double all = 0, own = 0;
  static ProcessorTime now() {
    ProcessorTime time;
    std::ifstream stat("/proc/stat");
    std::string name;
    std::array<double, 8> ticks{};  // user nice system idle iowait irq softirq steal
    stat >> name;
    for (double& count : ticks) stat >> count;
    time.all = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / static_cast<double>(sysconf(_SC_CLK_TCK));
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
    time.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    return time;
  }
};

struct Result {
  timeline::TimelineReport report;
  double measured_ms = 0;  // median of the unrecorded steps
  double others = 0;       // other programs' share of processor time
};

Result run(const Layout& layout, const Options& options) {
  const Config config = config_of(layout, options);
  const auto model = [&] { return model::build(model::with_vocabulary(config.model, 256)); };
  const Plan plan = make_plan(config, model(), 2);
  std::vector<std::vector<pipeline::Recording>> recordings(2);
  std::vector<std::vector<double>> times(2);
  const ProcessorTime before = ProcessorTime::now();
  const auto start = Clock::now();
  comm::run_threads(2, [&](comm::World& world) {
    Engine engine(plan, model(), world, {.threads = 1});
    std::vector<int32_t> ids(static_cast<size_t>(config.model.sequence_length));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 256);
    const ConstTensorView view{ids.data(), DType::Int32, {1, config.model.sequence_length}};
    const std::vector<Microbatch> batch(static_cast<size_t>(plan.batch.gradient_accumulation_steps), {view, view, 0});
    for (int step = 0; step < 2; ++step) engine.train_batch(batch);
    const auto rank = static_cast<size_t>(world.rank());
    for (int step = 0; step < 2 * options.pairs; ++step) {
      engine.record(step % 2 == 0);
      const auto begin = Clock::now();
      engine.train_batch(batch);
      if (step % 2 == 1) times[rank].push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    recordings[rank] = engine.take_recordings();
  });
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const ProcessorTime after = ProcessorTime::now();
  std::vector<double> steps;
  for (size_t step = 0; step < times[0].size(); ++step) steps.push_back((times[0][step] + times[1][step]) / 2);
  const double others = (after.all - before.all) - (after.own - before.own);
  return {timeline::make_timeline_report(plan, std::move(recordings)), median(steps),
          std::max(0.0, others) / wall / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN))};
}

void print_row(const Layout& layout, const Result& result) {
  const auto &simulated = result.report.simulated, &measured = result.report.measured;
  fmt::print("| {} | {:.1f} | {:.1f} | {:.3f} | {:.1f} / {:.1f} % | {:.2f} / {:.2f} | {:.2f} / {:.2f} | {:.2f} | {:.0f} % |\n",
             layout.name, result.report.predicted_ms, result.measured_ms, result.report.predicted_ms / result.measured_ms,
             100 * simulated.timeline.bubble_fraction, 100 * measured.timeline.bubble_fraction,
             simulated.exposed.axes[static_cast<size_t>(Axis::Pipeline)],
             measured.exposed.axes[static_cast<size_t>(Axis::Pipeline)],
             simulated.exposed.axes[static_cast<size_t>(Axis::Data)], measured.exposed.axes[static_cast<size_t>(Axis::Data)],
             result.report.update_ms, 100 * result.others);
  std::fflush(stdout);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--pairs") options.pairs = std::stoi(value);
    if (name == "--layers") options.layers = std::stoi(value);
    if (name == "--hidden") options.hidden = std::stoi(value);
    if (name == "--microbatches") options.microbatches = std::stoi(value);
    if (name == "--only") options.only = value;
  }
  return options;
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  const trivet::Options options = trivet::parse(argc, argv);
  fmt::print(
      "| layout | predicted ms | measured ms | ratio | bubble | waits for pipeline | for data | optimizer ms | others |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  for (const trivet::Layout& layout : trivet::layouts())
    if (layout.name.find(options.only) != std::string::npos) print_row(layout, run(layout, options));
}
