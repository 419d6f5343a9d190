// The configuration of a run as typed and checked values. Code that uses this struct never asks "is it set?" and never compares
// strings.
//
// Key names, meanings and defaults are DeepSpeed's wherever DeepSpeed has the key; docs/config.md (generated) lists them all. A
// Config comes from load_config (config/load.h), or is filled in by hand and checked with check(). The batch equation is solved
// once the world size is known (resolve_batch). Sections that belong together share a header (optimizer_config.h,
// parallel_config.h ...), for code that needs only these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/enum_names.h"
#include "data/options.h"
#include "engine/config/autotuning_config.h"
#include "engine/config/curriculum_config.h"
#include "engine/config/optimizer_config.h"
#include "engine/config/parallel_config.h"
#include "engine/config/run_config.h"
#include "engine/config/zero_config.h"
#include "model/description.h"

namespace trivet {

enum class DeviceChoice { Cpu, Cuda, Auto };
enum class CudaGraph { Auto, On, Off };
enum class Reproducible { Run, Layout };
enum class Recompute { None, Full, Selective };

template <>
struct EnumNames<DeviceChoice> {
  static constexpr std::array<std::pair<std::string_view, DeviceChoice>, 3> table{
      {{"cpu", DeviceChoice::Cpu}, {"cuda", DeviceChoice::Cuda}, {"auto", DeviceChoice::Auto}}};
};
template <>
struct EnumNames<CudaGraph> {
  static constexpr std::array<std::pair<std::string_view, CudaGraph>, 3> table{
      {{"auto", CudaGraph::Auto}, {"on", CudaGraph::On}, {"off", CudaGraph::Off}}};
};
template <>
struct EnumNames<Reproducible> {
  static constexpr std::array<std::pair<std::string_view, Reproducible>, 2> table{
      {{"run", Reproducible::Run}, {"layout", Reproducible::Layout}}};
};
template <>
struct EnumNames<Recompute> {
  static constexpr std::array<std::pair<std::string_view, Recompute>, 3> table{
      {{"none", Recompute::None}, {"full", Recompute::Full}, {"selective", Recompute::Selective}}};
};

// A key that was set in the file or on the command line. Used by messages, `trivet config explain` and the list of keys without
// effect.
struct GivenKey {
  std::string path, value;   // "zero_optimization.stage", "2"
  int line = 0, column = 0;  // line 0: given by --set
};

// A key whose value was "auto", and what was taken instead, as a text for the user.
struct AutoKey {
  std::string path, taken;
  std::string sentence = {};  // for a key that was not given: the value taken and why; empty: it was "auto"
};

struct Config {
  std::string source;                 // file name, for messages
  std::vector<GivenKey> given;        // empty for a Config built by hand; for AutoKeys the value that was taken
  std::vector<AutoKey> automatic;     // in the order of the key table
  std::vector<std::string> not_used;  // given keys that no table knows: "_comment: not used here: a comment"
  DeviceChoice device = DeviceChoice::Cpu;
  model::Description model;  // without the vocabulary's size, unless the config states it; the data has it otherwise
  // Weights that the run begins with; keys of the section "model" that are not given come from them
  // (trainer/load_with_model.h).
  std::string model_from;  // empty: random weights
  VocabularyConfig vocabulary;
  DataConfig data;
  TrainingConfig training;
  CurriculumConfig curriculum;
  SampleCurriculum sample_curriculum;
  DataEfficiencyConfig data_efficiency;
  ParallelConfig parallel;
  PipelineConfig pipeline;
  BatchConfig batch;
  ElasticityConfig elasticity;
  OptimizerConfig optimizer;
  LrScaling lr_scaling = LrScaling::None;
  int64_t lr_scaling_base_batch = 0;    // the batch size that optimizer.lr was chosen for
  double lr_scaling_warmup_epochs = 0;  // in which the learning rate rises from lr to the scaled one
  int64_t lr_scaling_warmup_steps = 0;  // the same in steps; no key: whoever knows the data sets it (trainer/epochs.h)
  SchedulerConfig scheduler;
  Fp16Config fp16;
  Bf16Config bf16;
  std::optional<DType> grad_accum_dtype;     // data_types.grad_accum_dtype; empty: see gradient_dtype()
  std::optional<DType> communication_dtype;  // communication_data_type; if given, it must be gradient_dtype()
  double gradient_clipping = 1.0;            // 0: off
  ZeroConfig zero;
  AioConfig aio;
  Recompute recompute = Recompute::None;  // activation_checkpointing; Selective: attention only
  int64_t recompute_every = 1;            // every N-th block is recomputed, the others keep their activations
  int64_t mlp_slice_tokens = 0;           // MLPs work on so many tokens at a time; 0: on all
  bool partition_activations = false;     // Recompute::Full: kept block inputs are split over the tensor axis
  bool cpu_checkpointing = false;         // Recompute::Full: kept block inputs are in host memory
  CudaGraph cuda_graph = CudaGraph::Auto;
  Reproducible reproducible = Reproducible::Run;
  CheckpointConfig checkpoint;
  AuditConfig audit;
  CommunicationConfig communication;
  MonitorConfig csv_monitor, tensorboard;
  RunConfig run;
  AutotuningConfig autotuning;
  TimelineConfig timeline;
  FlopsProfilerConfig flops_profiler;
  CommsLoggerConfig comms_logger;
  bool wall_clock_breakdown = false, memory_breakdown = false;  // for the steps that leave a line
  int64_t steps_per_print = 10;

  // Whether sums over tokens are made of leaves, so that they do not depend on the number of context ranks.
  bool fixes_token_sums() const { return reproducible == Reproducible::Layout && parallel.context_grain > 1; }
  // With sequence parallelism each tensor rank already holds only its own tokens of a block's input, so there is nothing to
  // split.
  bool partitions_inputs() const {
    return partition_activations && recompute == Recompute::Full && parallel.tensor > 1 && !parallel.sequence_parallel;
  }
  // Assumes that make_plan has already replaced Auto with the device that it found.
  Device compute_device() const { return device == DeviceChoice::Cuda ? Device::Cuda : Device::Cpu; }
  // On a CPU, host memory is the device's memory, so inputs stay where they are.
  bool offloads_inputs() const { return cpu_checkpointing && recompute == Recompute::Full && compute_device() != Device::Cpu; }
  bool offloads_to_files() const {
    return zero.offload_param.device == OffloadDevice::Nvme || zero.offload_optimizer.device == OffloadDevice::Nvme;
  }
  // Checks whether master weights and optimizer states live in, or pass through, host memory apart from the device's.
  bool updates_on_host() const {
    return compute_device() != Device::Cpu && zero.offload_optimizer.device != OffloadDevice::None;
  }
  // Checks whether weights or states live outside the memory of a device that has its own memory.
  bool offloads_shards_of_device() const {
    return updates_on_host() || (compute_device() != Device::Cpu && zero.offload_param.device != OffloadDevice::None);
  }
  bool uses_host_side() const { return offloads_shards_of_device() || offloads_inputs(); }  // zero/host_side.h
  // The type in which gradients are summed over microbatches and ranks in run mode. A sum of many terms loses most in bfloat16,
  // whose significands have 8 bits (bench/gradient_sums).
  DType gradient_dtype() const {
    return grad_accum_dtype.value_or(model_dtype() == DType::BFloat16 ? DType::Float32 : model_dtype());
  }
  DType model_dtype() const { return bf16.enabled ? DType::BFloat16 : fp16.enabled ? DType::Float16 : DType::Float32; }
};

}  // namespace trivet
