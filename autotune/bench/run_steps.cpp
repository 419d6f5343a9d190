#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "autotune/bench/bench.h"
#include "autotune/bench/run_steps.h"
#include "autotune/host_facts.h"
#include "autotune/units.h"
#include "engine/config/curriculum.h"
#include "engine/optimizer/lr_schedule.h"

namespace trivet::autotune {
namespace {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

bool run_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace

OwnCores::OwnCores(const comm::World& world, bool wanted) {
  if (!wanted) return;
  const std::vector<int> cores = allowed_cores();
  const size_t ranks = world.size(), rank = world.rank();
  if (ranks == 1 || cores.size() % ranks != 0) return;
  const size_t each = cores.size() / ranks;
  if (!run_on({cores.begin() + static_cast<std::ptrdiff_t>(rank * each),
               cores.begin() + static_cast<std::ptrdiff_t>((rank + 1) * each)}))
    return;
  before_ = cores;
}

OwnCores::~OwnCores() {
  if (!before_.empty()) run_on(before_);
}

MadeUpBatch::MadeUpBatch(const Plan& plan, const model::Model& model, int rank)
    : memory_(data::made_up_step(longest_sample(plan.config.curriculum, model.sample), plan.batch_layout(rank))) {
  for (const data::HostMicrobatch& one : memory_) views_.push_back(one.view);
}

double run_step(Engine& engine, const MadeUpBatch& batch) {
  const auto begin = Clock::now();
  engine.train_batch(batch.microbatches());
  return seconds_since(begin);
}

MeasuredSteps measure_step(comm::World& world, const Plan& plan, model::Model model, int steps, const BenchOptions& options) {
  const MadeUpBatch batch(plan, model, world.rank());
  const OwnCores cores(world, options.own_cores);
  Plan without_audits = plan;
  without_audits.config.audit.every_steps = 0;
  use_constant_rate(without_audits.config);
  use_longest_samples(without_audits.config.curriculum);
  Engine engine(std::move(without_audits), std::move(model), world,
                {.threads = options.threads, .local_rank = options.local_rank});
  run_step(engine, batch);
  MeasuredSteps measured{.machine = machine_name(engine.backend()), .seconds = {}};
  std::vector<double>& seconds = measured.seconds;
  for (int step = 0; step < steps; ++step) seconds.push_back(run_step(engine, batch));
  const auto stream = make_inline_stream();
  world.group().all_reduce({seconds.data(), DType::Float64, {steps}}, comm::ReduceOp::Max, *stream);
  return measured;
}

MeasuredSetup setup_of(const comm::World& world, const BenchOptions& options) {
  return {.machine = "",
          .device = options.device == DeviceChoice::Cuda ? Device::Cuda : Device::Cpu,
          .ranks = world.size(),
          .threads = options.threads,
          .kernels = {},
          .operations = {}};
}

std::string machine_name(const Backend& backend) {
  const std::string description = backend.description();
  if (backend.device() == Device::Cuda) return description.substr(description.find(' ') + 1);
  return fmt::format("{}, {} cores", processor_name(), sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace trivet::autotune
