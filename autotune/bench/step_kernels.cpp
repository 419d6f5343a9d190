#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "autotune/bench/bench.h"
#include "autotune/bench/kernel_timer.h"
#include "autotune/bench/run_steps.h"
#include "engine/config/curriculum.h"
#include "engine/config/refuse.h"
#include "engine/optimizer/lr_schedule.h"

namespace trivet::autotune {
namespace {

void check_one_thread_calls_kernels(const Config& config) {
  if (config.zero.overlap_comm)
    config::refuse(config, "zero_optimization.overlap_comm",
                   "must be false while kernels are timed: other threads call some of them");
  if (config.zero.offload_optimizer.device != OffloadDevice::None || config.zero.offload_param.device != OffloadDevice::None)
    config::refuse(config, "zero_optimization.offload_optimizer",
                   "and offload_param are not accepted while kernels are timed: other threads call some of them; remove both");
}

// "8192x768x3072", without trailing zeros.
std::string text_of(const std::array<int64_t, 5>& sizes) {
  std::string text;
  for (const int64_t size : sizes)
    if (size > 0) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "-" : text;
}

// One word, so that the columns of the table can be told apart by blanks.
std::string word_of(const std::string& text) {
  std::string word = text.empty() ? "-" : text;
  std::ranges::replace(word, ' ', '_');
  return word;
}

std::string rate_of(const KernelSample& sample) {
  const bool counts_flops = sample.bound == kernels::Bound::Products || sample.bound == kernels::Bound::Attention;
  const double work = counts_flops ? sample.flops : sample.bytes;
  if (work <= 0 || sample.seconds <= 0) return "-";
  return counts_flops ? fmt::format("{:.4g} TFLOP/s", 1e-12 * work / sample.seconds)
                      : fmt::format("{:.4g} GB/s", 1e-9 * work / sample.seconds);
}

}  // namespace

StepKernels measure_step_kernels(comm::World& world, const Plan& plan, model::Model model, int steps,
                                 const BenchOptions& options) {
  check_one_thread_calls_kernels(plan.config);
  const MadeUpBatch batch(plan, model, world.rank());
  const OwnCores cores(world, options.own_cores);
  Plan timed = plan;
  timed.config.audit.every_steps = 0;
  use_constant_rate(timed.config);
  use_longest_samples(timed.config.curriculum);
  KernelTimer timer;
  Engine engine(std::move(timed), std::move(model), world,
                {.threads = options.threads, .local_rank = options.local_rank, .observer = &timer});
  run_step(engine, batch);  // creates what is created only once
  timer.start(engine.backend().make_clock());
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) seconds.push_back(run_step(engine, batch));
  const KernelTimer::Times times = timer.take();
  std::ranges::sort(seconds);
  StepKernels result{.machine = machine_name(engine.backend()), .step_seconds = seconds[seconds.size() / 2], .kernels = {}};
  for (size_t i = 0; i < times.samples.size(); ++i)
    result.kernels.push_back({times.samples[i], static_cast<double>(times.calls[i]) / steps});
  std::ranges::sort(result.kernels, std::greater{}, &StepKernels::Kernel::seconds);
  return result;
}

std::string to_text(const StepKernels& kernels) {
  double all = 0, calls = 0;
  for (const StepKernels::Kernel& kernel : kernels.kernels) all += kernel.seconds(), calls += kernel.calls;
  std::string text = fmt::format("{}\n{:<28} {:<18} {:<9} {:<26} {:>7} {:>10} {:>10} {:>7}  {}\n", kernels.machine, "kernel",
                                 "variant", "type", "sizes", "calls", "us a call", "ms a step", "share", "rate");
  for (const StepKernels::Kernel& kernel : kernels.kernels) {
    const KernelSample& sample = kernel.sample;
    text += fmt::format("{:<28} {:<18} {:<9} {:<26} {:>7.10g} {:>10.1f} {:>10.3f} {:>6.1f}%  {}\n", word_of(sample.kernel),
                        word_of(sample.variant), name_of(sample.dtype), text_of(sample.sizes), kernel.calls,
                        1e6 * sample.seconds, 1e3 * kernel.seconds(), 100 * kernel.seconds() / all, rate_of(sample));
  }
  return text +
         fmt::format("kernels {:.3f} ms in {:.10g} calls, step {:.3f} ms\n", 1e3 * all, calls, 1e3 * kernels.step_seconds);
}

}  // namespace trivet::autotune
