// The configuration of a run as typed and checked values. Code that uses this struct never asks "is it set?" and never compares
// strings.
//
// Key names, meanings and defaults are DeepSpeed's wherever DeepSpeed has the key; docs/config.md (generated) lists them all. A
// Config comes from load_config (config/load.h), or is filled in by hand and checked with check(). The batch equation is solved
// once the world size is known (resolve_batch).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/axis.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/enum_names.h"
#include "model/description.h"
#include "pipeline/partition_method.h"
#include "pipeline/passes/unshard_release.h"
#include "pipeline/schedules/schedule_kind.h"

namespace trivet {

enum class DeviceChoice { Cpu, Cuda, Auto };
enum class CudaGraph { Auto, On, Off };
enum class Reproducible { Run, Layout };
enum class OptimizerType { Adam, AdamW, Sgd, Lion, Lamb, Adagrad, Muon };
enum class SchedulerType { LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR, Constant, Linear, Cosine };
enum class WarmupType { Log, Linear };
enum class LrScaling { None, Linear, SquareRoot };
enum class OffloadDevice { None, Cpu, Nvme };
enum class Recompute { None, Full, Selective };
enum class VocabularyKind { Bytes, Characters, Tokenizer, Size };
enum class TuningMetric { Throughput, Latency, Flops };
enum class TunerType { GridSearch, Random, ModelBased };
enum class WarningSignal { None, SigUsr1, SigUsr2 };
enum class SignalAction { Save, SaveAndStop };

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
struct EnumNames<WarningSignal> {
  static constexpr std::array<std::pair<std::string_view, WarningSignal>, 3> table{
      {{"none", WarningSignal::None}, {"SIGUSR1", WarningSignal::SigUsr1}, {"SIGUSR2", WarningSignal::SigUsr2}}};
};
template <>
struct EnumNames<SignalAction> {
  static constexpr std::array<std::pair<std::string_view, SignalAction>, 2> table{
      {{"save", SignalAction::Save}, {"save_and_stop", SignalAction::SaveAndStop}}};
};
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
template <>
struct EnumNames<OffloadDevice> {
  static constexpr std::array<std::pair<std::string_view, OffloadDevice>, 3> table{
      {{"none", OffloadDevice::None}, {"cpu", OffloadDevice::Cpu}, {"nvme", OffloadDevice::Nvme}}};
};
template <>
struct EnumNames<Recompute> {
  static constexpr std::array<std::pair<std::string_view, Recompute>, 3> table{
      {{"none", Recompute::None}, {"full", Recompute::Full}, {"selective", Recompute::Selective}}};
};

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

// What the tokens of the data are. Its key is model.vocabulary.
struct VocabularyConfig {
  VocabularyKind kind = VocabularyKind::Bytes;  // Size: model.vocabulary_size says it
  std::string tokenizer_file;                   // for VocabularyKind::Tokenizer
};

struct DataConfig {
  std::string train;       // text file (.txt, .gz), token file (.tokens) ...
  std::string validation;  // optional separate file; otherwise a fraction of train is held out
  double validation_fraction = 0.1;
  bool shuffle = true;
};

struct TrainingConfig {
  int64_t steps = 0;  // either steps or epochs
  double epochs = 0;
  int64_t seed = 1234;
  int64_t evaluate_every = 0;       // 0: never
  int64_t evaluate_samples = 0;     // 0: the whole validation split
  int64_t stop_after_skipped = 10;  // consecutive skipped steps before giving up (exit 16); unused with a dynamic loss scale
};

struct ParallelConfig {  // the data axis gets the ranks that the other axes leave
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  bool sequence_parallel = false;  // tensor ranks also split the sequence, for norms, residuals and dropout
  // The order of the axes in rank numbering, slowest-varying first. An axis of size 1 may be left out, but not the data axis.
  std::vector<Axis> rank_order = {Axis::Pipeline, Axis::Data, Axis::Context, Axis::Expert, Axis::Tensor};
};

struct PipelineConfig {
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;
  std::string schedule_file;  // if not empty, the programs are read from this file and `schedule` is ignored
  int64_t chunks = 0;         // stages per rank; 0: as many as the schedule needs (chunks_of)
  pipeline::PartitionMethod partition = pipeline::PartitionMethod::Cost;
  std::string partition_regex;  // for PartitionMethod::Type
  std::string cost_file;        // for PartitionMethod::Cost: measured (engine/timeline/block_costs.h); empty: counted FLOPs
};

// The number of stages per rank; 0 if a schedule file decides it.
constexpr int64_t chunks_of(const PipelineConfig& pipeline) {
  if (!pipeline.schedule_file.empty()) return 0;
  if (pipeline.chunks > 0) return pipeline.chunks;
  return pipeline.schedule == ScheduleKind::Interleaved || pipeline.schedule == ScheduleKind::ZeroBubbleV ? 2 : 1;
}

struct BatchConfig {  // 0: not given
  int64_t train_batch_size = 0, micro_batch_size = 0, gradient_accumulation_steps = 0;
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

// Where master weights and optimizer states are kept (ZeRO-Offload, Ren et al. 2021; ZeRO-Infinity, Rajbhandari et al. 2021).
struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;
  int64_t buffer_count = 4;                            // staging buffers, each for one tensor of a sub-group
  bool pipeline_read = false, pipeline_write = false;  // while another sub-group is updated
  double ratio = 1.0;                                  // share of the optimizer state that is offloaded
};

// Where sharded parameters are kept, at stage 3.
struct OffloadParamConfig {
  OffloadDevice device = OffloadDevice::None;
  std::string nvme_path;
  int64_t buffer_count = 5, buffer_size = 100'000'000;  // elements
  int64_t max_in_cpu = 1'000'000'000;                   // elements per rank that stay in host memory
};

// How the files of offloaded data are read and written.
struct AioConfig {
  int64_t block_size = 1048576, queue_depth = 8, intra_op_parallelism = 1;
};

struct ZeroConfig {
  int stage = 0;
  bool reduce_scatter = true, allgather_partitions = true;
  int64_t reduce_bucket_size = 500'000'000, allgather_bucket_size = 500'000'000;
  bool overlap_comm = false;  // default true at stage 3 (the parser sets it)
  int64_t sub_group_size = 1'000'000'000;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_param_persistence_threshold = 100'000;
  int64_t stage3_model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t stage3_max_live_parameters = 1'000'000'000;
  int64_t stage3_max_reuse_distance = 1'000'000'000;
  pipeline::UnshardRelease stage3_release = pipeline::UnshardRelease::Distance;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
};

struct CheckpointConfig {
  std::string directory;    // empty: nothing is saved
  int64_t every_steps = 0;  // 0: only at the end
  int64_t keep = 0;         // 0: all
  bool asynchronous = true;
  WarningSignal signal = WarningSignal::None;
  SignalAction signal_action = SignalAction::Save;
  double stop_seconds = 25;  // from SIGTERM until the run ends, saved or not; 0: no limit. Launchers and Slurm wait 30 s
};

struct AuditConfig {
  int64_t weights_every = 100;  // steps between comparisons of replicated weights across ranks; 0: never
};

struct CsvMonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

struct TimelineConfig {
  int64_t step = 0;   // 0: no step is recorded
  int64_t steps = 3;  // number of steps recorded
  std::string directory = "timeline";
};

// The search space and the limits of `trivet tune`. A training run ignores this section.
struct AutotuningConfig {
  bool enabled = false;
  bool fast = true;       // search only the ZeRO stage, mesh and microbatch
  bool overwrite = true;  // remove earlier results; false: reuse finished trials of the same setup
  std::string results_dir = "autotuning_results", exps_dir = "autotuning_exps";
  int64_t start_profile_step = 3, end_profile_step = 5;  // measured, both inclusive; steps count from 1
  TuningMetric metric = TuningMetric::Throughput;
  TunerType tuner_type = TunerType::GridSearch;
  int64_t early_stopping = 5;                                  // trials without improvement before stopping; 0: never
  int64_t num_trials = 50;                                     // maximum number of trials
  int64_t mp_size = 0;                                         // tensor x pipeline; 0: any divisor of the world size
  int64_t min_train_batch_size = 1, max_train_batch_size = 0;  // 0: no limit
  int64_t min_micro_batch_size = 1, max_micro_batch_size = 1024;
  int64_t micro_batch_sizes = 3;  // sizes tried per layout
};

// A key that was set in the file or on the command line. Used by messages, `trivet config explain` and the list of keys without
// effect.
struct GivenKey {
  std::string path, value;   // "zero_optimization.stage", "2"
  int line = 0, column = 0;  // line 0: given by --set
};

struct Config {
  std::string source;           // file name, for messages
  std::vector<GivenKey> given;  // empty for a Config built by hand
  DeviceChoice device = DeviceChoice::Cpu;
  model::Description model;  // without the vocabulary's size, unless the config states it; the data has it otherwise
  VocabularyConfig vocabulary;
  DataConfig data;
  TrainingConfig training;
  ParallelConfig parallel;
  PipelineConfig pipeline;
  BatchConfig batch;
  OptimizerConfig optimizer;
  LrScaling lr_scaling = LrScaling::None;
  int64_t lr_scaling_base_batch = 0;  // the batch size that optimizer.lr was chosen for
  SchedulerConfig scheduler;
  Fp16Config fp16;
  Bf16Config bf16;
  std::optional<DType> grad_accum_dtype;  // data_types.grad_accum_dtype; none: the model's dtype
  double gradient_clipping = 1.0;         // 0: off
  ZeroConfig zero;
  AioConfig aio;
  Recompute recompute = Recompute::None;  // activation_checkpointing; Selective: attention only
  int64_t recompute_every = 1;            // every N-th block is recomputed, the others keep their activations
  bool partition_activations = false;     // Recompute::Full: kept block inputs are split over the tensor axis
  CudaGraph cuda_graph = CudaGraph::Auto;
  Reproducible reproducible = Reproducible::Run;
  CheckpointConfig checkpoint;
  AuditConfig audit;
  CsvMonitorConfig csv_monitor;
  AutotuningConfig autotuning;
  TimelineConfig timeline;
  int64_t steps_per_print = 10;

  // With sequence parallelism each tensor rank already holds only its own tokens of a block's input, so there is nothing to
  // split.
  bool partitions_inputs() const {
    return partition_activations && recompute == Recompute::Full && parallel.tensor > 1 && !parallel.sequence_parallel;
  }
  // Assumes that make_plan has already replaced Auto with the device that it found.
  Device compute_device() const { return device == DeviceChoice::Cuda ? Device::Cuda : Device::Cpu; }
  bool offloads_to_files() const {
    return zero.offload_param.device == OffloadDevice::Nvme || zero.offload_optimizer.device == OffloadDevice::Nvme;
  }
  // Whether master weights and optimizer states live in host memory, or pass through it, while the device has its own memory.
  bool updates_on_host() const {
    return compute_device() != Device::Cpu && zero.offload_optimizer.device != OffloadDevice::None;
  }
  // Whether weights or states live outside the memory of a device that has its own memory (zero/host_side.h).
  bool uses_host_side() const {
    return updates_on_host() || (compute_device() != Device::Cpu && zero.offload_param.device != OffloadDevice::None);
  }
  DType model_dtype() const { return bf16.enabled ? DType::BFloat16 : fp16.enabled ? DType::Float16 : DType::Float32; }
};

// The solution of train = micro x accumulation x data-parallel size. Any two of the three keys determine the third; with only
// one of the batch sizes given, accumulation is 1. resolve_batch throws ConfigError with the numbers and the nearest valid
// values.
struct ResolvedBatch {
  int64_t train_batch_size = 0, micro_batch_size = 0, gradient_accumulation_steps = 0;
};
ResolvedBatch resolve_batch(const BatchConfig& batch, int64_t data_parallel_size, const std::string& source);

}  // namespace trivet
