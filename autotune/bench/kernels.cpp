#include <fmt/format.h>

#include <chrono>

#include "autotune/bench/bench.h"
#include "autotune/bench/kernel_timer.h"
#include "autotune/bench/run_steps.h"
#include "autotune/bench/shapes.h"
#include "autotune/units.h"
#include "engine/make_plan.h"
#include "engine/optimizer/lr_schedule.h"

namespace trivet::autotune {
namespace {

constexpr int kSteps = 3;          // timed steps per shape
constexpr int kFewestShapes = 12;  // measured however long they take
constexpr int kMaxTries = 5000;

// Returns on all ranks what rank 0 decides.
bool agree(comm::World& world, bool goes_on) {
  int64_t word = world.rank() == 0 && goes_on ? 1 : 0;
  const auto stream = make_inline_stream();
  world.group().all_reduce({&word, DType::Int64, {1}}, comm::ReduceOp::Max, *stream);
  return word != 0;
}

KernelTimer::Times time_steps(comm::World& world, const Config& config, const BenchOptions& options, std::string& machine) {
  model::Model model = model::build(config.model);
  Plan plan = make_plan(config, model, world.size());
  use_constant_rate(plan.config);
  const MadeUpBatch batch(plan, model);
  KernelTimer timer;
  Engine engine(plan, std::move(model), world,
                {.threads = options.threads, .local_rank = options.local_rank, .observer = &timer});
  run_step(engine, batch);  // creates what is created only once
  machine = machine_name(engine.backend());
  timer.start(engine.backend().make_clock());
  for (int step = 0; step < kSteps; ++step) run_step(engine, batch);
  return timer.take();
}

}  // namespace

MeasuredSetup measure_kernels(comm::World& world, const BenchOptions& options) {
  const OwnCores cores(world, options.own_cores);
  const auto begin = Clock::now();
  MeasuredSetup setup = setup_of(world, options);
  std::vector<double> gaps;
  int shapes = 0;
  for (int n = 0; n < kMaxTries && agree(world, shapes < kFewestShapes || seconds_since(begin) < options.seconds); ++n) {
    const std::optional<Config> config = bench_config(n, world.size(), options.device);
    if (!config) continue;
    ++shapes;
    KernelTimer::Times times = time_steps(world, *config, options, setup.machine);
    setup.kernels.insert(setup.kernels.end(), times.samples.begin(), times.samples.end());
    gaps.push_back(times.gap_seconds);
    if (world.rank() == 0 && shapes % 20 == 0)
      options.progress(fmt::format("{} shapes, {} kernels, {:.0f} s", shapes, setup.kernels.size(), seconds_since(begin)));
  }
  for (const double gap : gaps) setup.call_seconds += gap / static_cast<double>(gaps.size());
  return setup;
}

}  // namespace trivet::autotune
