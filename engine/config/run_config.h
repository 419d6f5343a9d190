// The sections of a Config that say what a run writes and uses: training, checkpoint, run, csv_monitor, tensorboard, timeline,
// audit, communication. The data that it reads is in data/options.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace trivet {

enum class WarningSignal { None, SigUsr1, SigUsr2 };
enum class SignalAction { Save, SaveAndStop };
enum class TransportChoice { Auto, Ucx, Gloo };
enum class SumsChoice { Chain, Exchange };

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
struct EnumNames<TransportChoice> {
  static constexpr std::array<std::pair<std::string_view, TransportChoice>, 3> table{
      {{"auto", TransportChoice::Auto}, {"ucx", TransportChoice::Ucx}, {"gloo", TransportChoice::Gloo}}};
};
template <>
struct EnumNames<SumsChoice> {
  static constexpr std::array<std::pair<std::string_view, SumsChoice>, 2> table{
      {{"chain", SumsChoice::Chain}, {"exchange", SumsChoice::Exchange}}};
};

struct TrainingConfig {
  int64_t steps = 0;  // either steps or epochs
  double epochs = 0;
  int64_t seed = 1234;
  int64_t evaluate_every = 0;           // steps; 0: never
  int64_t evaluate_every_epochs = 0;    // 0: never
  int64_t evaluate_samples = 0;         // 0: the whole validation split
  int64_t early_stopping_patience = 0;  // evaluations in a row that may bring no improvement before the run ends; 0: no limit
  double early_stopping_threshold = 0;  // by more than this an evaluation must be better than the best one to improve on it
  int64_t stop_after_skipped = 10;  // consecutive skipped steps before giving up (exit 16); unused with a dynamic loss scale
  bool evaluates() const { return evaluate_every > 0 || evaluate_every_epochs > 0; }
};

// Checkpoints in the memory of the hosts, as well as those on disk.
struct MemoryCheckpointConfig {
  int64_t every_steps = 0;  // 0: none
  std::string directory;    // each host's, on a file system in memory
  int replicas = 1;         // hosts that hold each file in addition to the one that wrote it
};

struct CheckpointConfig {
  std::string directory;     // empty: nothing is saved
  int64_t every_steps = 0;   // 0: only at the end
  int64_t every_epochs = 0;  // 0: only at the end
  int64_t keep = 0;          // 0: all
  bool keep_best = false;    // the step with the lowest validation loss is saved, and never removed
  bool asynchronous = true;
  WarningSignal signal = WarningSignal::None;
  SignalAction signal_action = SignalAction::Save;
  int replicas = 0;          // hosts that hold each file in addition to the one that wrote it; 0: all hosts share the directory
  double stop_seconds = 25;  // from SIGTERM until the run ends, saved or not; 0: no limit. Launchers and Slurm wait 30 s
  MemoryCheckpointConfig memory;
  bool saves_to_memory() const { return memory.every_steps > 0; }
};

struct AuditConfig {
  int64_t weights_every = 100;  // steps between comparisons of replicated weights across ranks; 0: never
  int64_t every_steps = 0;      // steps between audits of gradients (engine/gradient_audit.h); 0: never
};

// Between ranks on several hosts; ranks on one host share memory.
struct CommunicationConfig {
  TransportChoice transport = TransportChoice::Auto;
  std::string interface;                // this host's: a name or a network; empty: the one that reaches rank 0's host
  SumsChoice sums = SumsChoice::Chain;  // for floats
  double join_seconds = 30;             // until all ranks have joined
  double silence_seconds = 4.25;        // until a rank that sends no heartbeats is lost
  double progress_seconds = 600;        // until a rank that is alive but does not enter an operation ends the job
};

// The settings of csv_monitor and of tensorboard.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

struct RunConfig {
  std::string directory;   // for the run's inputs and measurements (report/run_files.h); empty: nothing is kept
  double peak_tflops = 0;  // peak of one rank's device, for model FLOPs utilization; 0: not known
};

struct TimelineConfig {
  int64_t step = 0;   // 0: no step is recorded
  int64_t steps = 3;  // number of steps recorded
  std::string directory = "timeline";
};

// The report on the cost of one step's operations, block by block (engine/timeline/work_profile.h).
struct FlopsProfilerConfig {
  bool enabled = false;
  int64_t profile_step = 1;   // steps before the one that is profiled
  int64_t module_depth = -1;  // 0: the model, 1: its blocks, 2: their kernels; -1: all
  int64_t top_modules = 1;    // named for each depth
  bool detailed = true;
  std::string output_file;  // empty: the report is printed
};

// The operations between ranks (engine/timeline/operation_log.h).
struct CommsLoggerConfig {
  bool enabled = false;
  bool prof_all = true;
  std::vector<std::string> prof_ops;  // if not all: names of operations
  bool verbose = false;               // each operation leaves a line
  bool debug = false;                 // operations are told apart by their groups
  bool logs() const { return enabled && (prof_all || !prof_ops.empty()); }
};

}  // namespace trivet
