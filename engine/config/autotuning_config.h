// The section of a Config that `trivet tune` reads: autotuning.
#pragma once

#include <cstdint>
#include <string>

#include "core/enum_names.h"

namespace trivet {

enum class TuningMetric { Throughput, Latency, Flops };
enum class TunerType { GridSearch, Random, ModelBased };

template <>
struct EnumNames<TuningMetric> {
  static constexpr std::array<std::pair<std::string_view, TuningMetric>, 3> table{
      {{"throughput", TuningMetric::Throughput}, {"latency", TuningMetric::Latency}, {"flops", TuningMetric::Flops}}};
};
template <>
struct EnumNames<TunerType> {
  static constexpr std::array<std::pair<std::string_view, TunerType>, 3> table{
      {{"gridsearch", TunerType::GridSearch}, {"random", TunerType::Random}, {"model_based", TunerType::ModelBased}}};
};

// The search space and the limits of `trivet tune`. A training run ignores this section.
struct AutotuningConfig {
  bool enabled = false;
  bool fast = true;       // search only the ZeRO stage, mesh and microbatch
  bool overwrite = true;  // remove earlier results; false: reuse finished trials of the same setup
  std::string results_dir = "autotuning_results", exps_dir = "autotuning_exps";
  int64_t start_profile_step = 3, end_profile_step = 5;  // measured, both inclusive; steps count from 1
  TuningMetric metric = TuningMetric::Throughput;
  TunerType tuner_type = TunerType::ModelBased;
  int64_t early_stopping = 5;                                  // trials without improvement before stopping; 0: never
  int64_t num_trials = 50;                                     // maximum number of trials
  int64_t mp_size = 0;                                         // tensor x pipeline; 0: any divisor of the world size
  int64_t min_train_batch_size = 1, max_train_batch_size = 0;  // 0: no limit
  int64_t min_micro_batch_size = 1, max_micro_batch_size = 1024;
  int64_t micro_batch_sizes = 3;  // sizes tried per layout
};

}  // namespace trivet
