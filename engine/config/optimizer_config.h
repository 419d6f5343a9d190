// The sections of a Config that say how weights are updated: optimizer, scheduler, fp16, bf16 (docs/config.md).
#pragma once

#include <cstdint>

#include "core/enum_names.h"

namespace trivet {

enum class OptimizerType { Adam, AdamW, Sgd, Lion, Lamb, Adagrad, Muon };
enum class SchedulerType { LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR, Constant, Linear, Cosine };
enum class WarmupType { Log, Linear };
enum class LrScaling { None, Linear, SquareRoot };

template <>
struct EnumNames<OptimizerType> {
  static constexpr std::array<std::pair<std::string_view, OptimizerType>, 7> table{{{"Adam", OptimizerType::Adam},
                                                                                    {"AdamW", OptimizerType::AdamW},
                                                                                    {"SGD", OptimizerType::Sgd},
                                                                                    {"Lion", OptimizerType::Lion},
                                                                                    {"Lamb", OptimizerType::Lamb},
                                                                                    {"Adagrad", OptimizerType::Adagrad},
                                                                                    {"Muon", OptimizerType::Muon}}};
};
template <>
struct EnumNames<SchedulerType> {
  static constexpr std::array<std::pair<std::string_view, SchedulerType>, 8> table{
      {{"LRRangeTest", SchedulerType::LRRangeTest},
       {"OneCycle", SchedulerType::OneCycle},
       {"WarmupLR", SchedulerType::WarmupLR},
       {"WarmupDecayLR", SchedulerType::WarmupDecayLR},
       {"WarmupCosineLR", SchedulerType::WarmupCosineLR},
       {"Constant", SchedulerType::Constant},
       {"Linear", SchedulerType::Linear},
       {"Cosine", SchedulerType::Cosine}}};
};
template <>
struct EnumNames<WarmupType> {
  static constexpr std::array<std::pair<std::string_view, WarmupType>, 2> table{
      {{"log", WarmupType::Log}, {"linear", WarmupType::Linear}}};
};
template <>
struct EnumNames<LrScaling> {
  static constexpr std::array<std::pair<std::string_view, LrScaling>, 3> table{
      {{"none", LrScaling::None}, {"linear", LrScaling::Linear}, {"sqrt", LrScaling::SquareRoot}}};
};

struct OptimizerConfig {
  OptimizerType type = OptimizerType::AdamW;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  bool bias_correction = true;
  bool adam_w_mode = true;                                // Adam only: decoupled decay
  double momentum = 0.0, dampening = 0.0;                 // SGD, Muon
  bool nesterov = false;                                  // SGD; Muon, where the default is true
  double max_coefficient = 10.0, min_coefficient = 0.01;  // LAMB trust ratio
  double muon_lr = 0.0, adam_lr = 0.0;                    // Muon: 0 means lr
  bool decay_all = false;                                 // true: biases and norms decay too
};

struct SchedulerConfig {
  SchedulerType type = SchedulerType::Constant;
  int64_t total_num_steps = 0;
  double warmup_min_lr = 0.0, warmup_max_lr = 0.0;  // maximum 0: the optimizer's lr
  int64_t warmup_num_steps = 0;                     // the parser's default for DeepSpeed's own schedulers is 1000
  WarmupType warmup_type = WarmupType::Log;
  double warmup_min_ratio = 0.0, cos_min_ratio = 1e-4;
  double range_min_lr = 1e-3, range_step_rate = 1.0;
  int64_t range_step_size = 2000;
  bool range_staircase = false;
  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  int64_t cycle_first_step_size = 2000, cycle_second_step_size = 0, cycle_first_stair_count = 0, cycle_second_stair_count = -1,
          decay_step_size = 0;
  bool cycle_momentum = true;
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  double end_ratio = 0.0;  // Linear, Cosine: final lr / lr
};

struct Fp16Config {
  bool enabled = false;
  double loss_scale = 0;  // 0: dynamic
  int64_t initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

struct Bf16Config {
  bool enabled = false;
  bool check_grad_overflow = true;
};

}  // namespace trivet
