#include "engine/optimizer/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/load.h"
#include "engine/config/optimizer_traits.h"

namespace trivet {
namespace {

double to_double(int64_t count) { return static_cast<double>(count); }

// Rises from 0 to 1 while last < warmup.
double warmup_share(const SchedulerConfig& s, int64_t last, int64_t warmup) {
  if (s.warmup_type == WarmupType::Linear) return to_double(last) / to_double(warmup);
  return std::log(to_double(last + 1)) / std::log(to_double(warmup));
}

// DeepSpeed never warms up in fewer than two steps: log(1) would divide by zero.
int64_t warmup_steps(const SchedulerConfig& s) { return std::max<int64_t>(2, s.warmup_num_steps); }

double warmup_lr(const SchedulerConfig& s, double base_lr, int64_t last, double share_after_warmup) {
  if (last < 0) return s.warmup_min_lr;
  const double max_lr = s.warmup_max_lr > 0 ? s.warmup_max_lr : base_lr;
  const int64_t warmup = warmup_steps(s);
  const double share = last < warmup ? warmup_share(s, last, warmup) : share_after_warmup;
  return s.warmup_min_lr + (max_lr - s.warmup_min_lr) * share;
}

double linear_decay_share(const SchedulerConfig& s, int64_t last) {
  const double decay_steps = std::max(1.0, to_double(s.total_num_steps - warmup_steps(s)));
  return std::max(0.0, to_double(s.total_num_steps - last) / decay_steps);
}

double half_cosine(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

double warmup_cosine_lr(const SchedulerConfig& s, double base_lr, int64_t last) {
  if (last < 0) return 0;
  const int64_t warmup = warmup_steps(s);
  if (last < warmup) return base_lr * (s.warmup_min_ratio + (1 - s.warmup_min_ratio) * warmup_share(s, last, warmup));
  const double decay_steps = to_double(std::max<int64_t>(1, s.total_num_steps - warmup));
  const double progress = std::min(1.0, to_double(last - warmup + 1) / decay_steps);
  return base_lr * (s.cos_min_ratio + (1 - s.cos_min_ratio) * half_cosine(progress));
}

double range_test_lr(const SchedulerConfig& s, int64_t last) {
  const double interval = to_double(last + 1) / to_double(s.range_step_size);
  return s.range_min_lr * (1 + s.range_step_rate * (s.range_staircase ? std::floor(interval) : interval));
}

// One cycle: up in `first` steps, down in `second`, then decay.
struct Cycle {
  double first, second;
  int64_t first_stairs, second_stairs;

  explicit Cycle(const SchedulerConfig& s)
      : first(to_double(s.cycle_first_step_size)),
        second(to_double(s.cycle_second_step_size > 0 ? s.cycle_second_step_size : s.cycle_first_step_size)),
        first_stairs(s.cycle_first_stair_count),
        second_stairs(s.cycle_second_stair_count >= 0 ? s.cycle_second_stair_count : s.cycle_first_stair_count) {}

  double size() const { return first + second; }
  bool contains(int64_t last) const { return to_double(last) < size(); }
  double decay_steps(int64_t last) const { return to_double(last + 1) - size(); }

  // The height is 0 at both ends and 1 at the top. It changes in stairs if a count of stairs is given.
  double height(int64_t last) const {
    const double at = std::fmod(to_double(last + 1), size());
    const bool rising = at <= first;
    const double share = rising ? at / first : (size() - at) / second;
    const int64_t stairs = rising ? first_stairs : second_stairs;
    if (stairs == 0) return share;
    const double stair = rising ? at * to_double(stairs) / first : (size() - at) * to_double(stairs) / second;
    return std::floor(stair) / to_double(stairs);
  }
};

double one_cycle_lr(const SchedulerConfig& s, int64_t last) {
  const Cycle cycle(s);
  if (cycle.contains(last)) return s.cycle_min_lr + (s.cycle_max_lr - s.cycle_min_lr) * cycle.height(last);
  if (s.decay_step_size == 0) return s.cycle_min_lr;
  return s.cycle_min_lr / (1 + s.decay_lr_rate * cycle.decay_steps(last) / to_double(s.decay_step_size));
}

double one_cycle_beta1(const SchedulerConfig& s, int64_t last) {
  if (last < 0) return s.cycle_min_mom;  // DeepSpeed starts at the lower boundary, though its cycle starts at the upper
  const Cycle cycle(s);
  if (cycle.contains(last)) return s.cycle_max_mom - (s.cycle_max_mom - s.cycle_min_mom) * cycle.height(last);
  if (s.decay_step_size == 0) return s.cycle_max_mom;
  return s.cycle_max_mom * (1 + s.decay_mom_rate * cycle.decay_steps(last) / to_double(s.decay_step_size));
}

// Constant, Linear and Cosine: the first step already has a learning rate above 0, and the decay ends at end_ratio.
double own_share(const SchedulerConfig& s, int64_t step) {
  if (step < s.warmup_num_steps) return to_double(step + 1) / to_double(s.warmup_num_steps);
  if (s.type == SchedulerType::Constant) return 1;
  const double decay_steps = to_double(std::max<int64_t>(1, s.total_num_steps - s.warmup_num_steps));
  const double progress = std::min(1.0, to_double(step - s.warmup_num_steps) / decay_steps);
  const double share = s.type == SchedulerType::Linear ? 1 - progress : half_cosine(progress);
  return s.end_ratio + (1 - s.end_ratio) * share;
}

// Goyal et al. 2017: from 1 in even steps to `scaled`, which is reached after `warmup` steps.
double warmed_up(double scaled, int64_t warmup, int64_t step) {
  return step >= warmup ? scaled : 1 + (scaled - 1) * to_double(step) / to_double(warmup);
}

bool has_end(SchedulerType type) {
  return type == SchedulerType::WarmupDecayLR || type == SchedulerType::WarmupCosineLR || type == SchedulerType::Linear ||
         type == SchedulerType::Cosine;
}

constexpr int64_t kMostStepsToLookAt = 1'000'000;  // so that it takes no time

// The steps of the run that have a learning rate of their own to look at; a run of epochs shows only how it begins.
int64_t steps_to_look_at(const Config& config) {
  return config.training.steps > 0 ? config.training.steps : config.scheduler.warmup_num_steps + 10;
}

bool never_learns(const Config& config, int64_t steps) {
  for (int64_t step = 0; step < std::min(steps, kMostStepsToLookAt); ++step)
    if (lr_at(config.scheduler, config.optimizer.lr, step) != 0) return false;
  return steps <= kMostStepsToLookAt;
}

// The first step, counted from 1, from which the learning rate stays as it is in the last one.
int64_t first_of_last_rate(const Config& config, int64_t steps) {
  const auto rate = [&](int64_t step) { return lr_at(config.scheduler, config.optimizer.lr, step); };
  const int64_t earliest = std::max<int64_t>(0, steps - kMostStepsToLookAt);
  int64_t first = steps - 1;
  while (first > earliest && rate(first - 1) == rate(steps - 1)) --first;
  return first + 1;
}

}  // namespace

bool ends_with_the_run(const SchedulerConfig& scheduler) { return has_end(scheduler.type) && scheduler.total_num_steps == 0; }

std::vector<std::string> warnings_of_rates(const Config& config) {
  const SchedulerConfig& s = config.scheduler;
  const int64_t steps = steps_to_look_at(config), run = config.training.steps;
  if (never_learns(config, steps)) {
    const bool has_schedule = is_given(config, "scheduler.type");
    return {fmt::format("{}: the learning rate is 0 in {}, so nothing is learned",
                        has_schedule ? "scheduler.params" : "optimizer.params.lr",
                        run == 1  ? "the only step"
                        : run > 0 ? fmt::format("all {} steps", run)
                                  : "every step")};
  }
  if (run == 0) return {};
  const double last = lr_at(s, config.optimizer.lr, run - 1);
  const int64_t first = first_of_last_rate(config, run);
  const bool ends_early = has_end(s.type) && s.total_num_steps > 0 && s.total_num_steps < run;
  if (ends_early && s.total_num_steps >= s.warmup_num_steps)
    return {
        fmt::format("scheduler.params.total_num_steps: the schedule of {} steps ends before the run of {} steps; "
                    "from step {} on the learning rate is {}",
                    s.total_num_steps, run, first, last)};
  if (last == 0)
    return {
        fmt::format("scheduler.params: from step {} of {} on the learning rate is 0, so nothing more is learned", first, run)};
  return {};
}

double lr_at(const SchedulerConfig& scheduler, double base_lr, int64_t step) {
  const int64_t last = step - 1;
  switch (scheduler.type) {
    case SchedulerType::LRRangeTest: return range_test_lr(scheduler, last);
    case SchedulerType::OneCycle: return one_cycle_lr(scheduler, last);
    case SchedulerType::WarmupLR: return warmup_lr(scheduler, base_lr, last, 1);
    case SchedulerType::WarmupDecayLR: return warmup_lr(scheduler, base_lr, last, linear_decay_share(scheduler, last));
    case SchedulerType::WarmupCosineLR: return warmup_cosine_lr(scheduler, base_lr, last);
    case SchedulerType::Constant:
    case SchedulerType::Linear:
    case SchedulerType::Cosine: return base_lr * own_share(scheduler, step);
  }
  throw std::logic_error("lr_at: unknown scheduler");
}

double lr_at(const Config& config, int64_t train_batch_size, int64_t step) {
  const double scaled = lr_factor(config.lr_scaling, config.lr_scaling_base_batch, train_batch_size);
  const double factor = warmed_up(scaled, config.lr_scaling_warmup_steps, step);
  return factor * lr_at(config.scheduler, config.optimizer.lr, step);
}

void check_steps_are_known(const Config& config) {
  const auto refuse = [&](const char* key, const char* what) {
    throw ConfigError(
        fmt::format("{}: {}: its epochs can only be counted by a trainer that knows the data; {}", config.source, key, what));
  };
  if (has_end(config.scheduler.type) && config.scheduler.total_num_steps == 0)
    refuse("scheduler.type", "give scheduler.params.total_num_steps or training.steps");
  if (config.lr_scaling != LrScaling::None && config.lr_scaling_warmup_epochs > 0 && config.lr_scaling_warmup_steps == 0)
    refuse("optimizer.lr_scaling.warmup_epochs", "set Config::lr_scaling_warmup_steps, or leave warmup_epochs out");
}

void use_constant_rate(Config& config) {
  config.scheduler = {};
  config.lr_scaling = LrScaling::None;
}

double lr_factor(LrScaling rule, int64_t base_batch, int64_t batch) {
  if (rule == LrScaling::None) return 1;
  if (base_batch < 1) throw std::logic_error("lr_factor: base batch below 1");
  const double ratio = to_double(batch) / to_double(base_batch);
  return rule == LrScaling::Linear ? ratio : std::sqrt(ratio);
}

Betas betas_at(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer, int64_t step) {
  const bool cycles =
      scheduler.type == SchedulerType::OneCycle && scheduler.cycle_momentum && traits_of(optimizer.type).betas_cycle;
  if (!cycles) return {optimizer.beta1, optimizer.beta2};
  return {one_cycle_beta1(scheduler, step - 1), 0.99};
}

}  // namespace trivet
