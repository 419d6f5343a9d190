// Learning rate and momentum of an optimizer step: pure functions of the config and the number of the step.
//
// `step` counts optimizer steps from 0 and leaves out skipped ones. DeepSpeed's schedulers are stepped after each optimizer
// step, so step s sees last_batch_iteration = s - 1; their formulas are in lr_schedule.cpp as functions of `last`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/optimizer_config.h"

namespace trivet {

struct Config;

// `base_lr` is optimizer.params.lr.
double lr_at(const SchedulerConfig& scheduler, double base_lr, int64_t step);

// Returns the same for a complete config, scaled with the batch as optimizer.lr_scaling says.
double lr_at(const Config& config, int64_t train_batch_size, int64_t step);

// Throws ConfigError if the schedule depends on epochs whose number of steps nobody has set (Config::lr_scaling_warmup_steps,
// SchedulerConfig::total_num_steps).
void check_steps_are_known(const Config& config);

// Checks whether the schedule ends where the run does, because no key says where it ends.
bool ends_with_the_run(const SchedulerConfig& scheduler);

// Steps that learn nothing, because their learning rate is 0, and a schedule that ends before the run, for a user who probably
// did not mean that: lines, each beginning with a key.
std::vector<std::string> warnings_of_rates(const Config& config);

// Sets a constant learning rate, which depends on no number of epochs, for steps that are only timed.
void use_constant_rate(Config& config);

// The factor by which learning rates are multiplied when a step has `batch` samples instead of `base_batch`.
double lr_factor(LrScaling rule, int64_t base_batch, int64_t batch);

struct Betas {
  double beta1 = 0, beta2 = 0;
};

// The optimizer's own betas, unless OneCycle cycles them: then beta2 is 0.99, as in DeepSpeed. Only Adam, AdamW, Lamb and Lion
// have betas to cycle.
Betas betas_at(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer, int64_t step);

}  // namespace trivet
