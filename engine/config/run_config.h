// The sections of a Config that say what a run reads, writes and uses: model.vocabulary, data, training, checkpoint,
// run, csv_monitor, tensorboard, timeline, audit, communication.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace trivet {

enum class VocabularyKind { Bytes, Characters, Tokenizer, Size };
enum class WarningSignal { None, SigUsr1, SigUsr2 };
enum class SignalAction { Save, SaveAndStop };
enum class TransportChoice { Auto, Ucx, Gloo };
enum class SumsChoice { Chain, Exchange };
enum class SamplerKind { Trivet, PyTorch };

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

template <>
struct EnumNames<SamplerKind> {
  static constexpr std::array<std::pair<std::string_view, SamplerKind>, 2> table{
      {{"trivet", SamplerKind::Trivet}, {"pytorch", SamplerKind::PyTorch}}};
};

// How the messages of a conversation become one text (data/chat_template.h).
enum class ChatTemplate { None, ChatMl, Llama2, Llama3 };
template <>
struct EnumNames<ChatTemplate> {
  static constexpr std::array<std::pair<std::string_view, ChatTemplate>, 4> table{{{"none", ChatTemplate::None},
                                                                                   {"chatml", ChatTemplate::ChatMl},
                                                                                   {"llama-2", ChatTemplate::Llama2},
                                                                                   {"llama-3", ChatTemplate::Llama3}}};
};

// Which tokens are a sample of text (data/document_source.h).
// Auto: Single for data that mark prompts, otherwise Stream (data/dataset.h).
enum class Packing { Auto, Stream, Whole, Single };
template <>
struct EnumNames<Packing> {
  static constexpr std::array<std::pair<std::string_view, Packing>, 4> table{
      {{"auto", Packing::Auto}, {"stream", Packing::Stream}, {"whole", Packing::Whole}, {"single", Packing::Single}}};
};

// Which tokens the loss expects from the model, if the data says which are completions.
enum class LossOn { Completions, All };
template <>
struct EnumNames<LossOn> {
  static constexpr std::array<std::pair<std::string_view, LossOn>, 2> table{
      {{"completions", LossOn::Completions}, {"all", LossOn::All}}};
};

enum class ImageFormat { Auto, Idx, Cifar10, Cifar100, Png, Words };  // data/images.h
template <>
struct EnumNames<ImageFormat> {
  static constexpr std::array<std::pair<std::string_view, ImageFormat>, 6> table{{{"auto", ImageFormat::Auto},
                                                                                  {"idx", ImageFormat::Idx},
                                                                                  {"cifar10", ImageFormat::Cifar10},
                                                                                  {"cifar100", ImageFormat::Cifar100},
                                                                                  {"png", ImageFormat::Png},
                                                                                  {"words", ImageFormat::Words}}};
};

// What the tokens of the data are. Its key is model.vocabulary.
struct VocabularyConfig {
  VocabularyKind kind = VocabularyKind::Bytes;  // Size: model.vocabulary_size says it
  std::string tokenizer_file;                   // for VocabularyKind::Tokenizer
};

// One of the sources of a mixture (data/mixture.h).
struct DataSource {
  std::string path;
  double weight = 1;  // its share of the samples of a run is this part of the sum of all weights
};

// What files of text and of tokens are taken for.
enum class ReadAs { Auto, Text, Bytes, UInt16, UInt32 };
template <>
struct EnumNames<ReadAs> {
  static constexpr std::array<std::pair<std::string_view, ReadAs>, 5> table{{{"auto", ReadAs::Auto},
                                                                             {"text", ReadAs::Text},
                                                                             {"bytes", ReadAs::Bytes},
                                                                             {"uint16", ReadAs::UInt16},
                                                                             {"uint32", ReadAs::UInt32}}};
};

struct DataConfig {
  std::string train;                 // texts, files of tokens, or images (docs/data.md)
  std::vector<DataSource> sources;   // instead of train
  ReadAs read_as = ReadAs::Auto;     // what the files are; Auto: what their content says (data/file_kind.h)
  bool grows = false;                // files that appear in train during the run are taken up (data/growing_data.h)
  std::string validation;            // optional separate file; otherwise a fraction of train is held out
  double validation_fraction = 0.1;  // with `grows`: 0
  ChatTemplate chat_template = ChatTemplate::None;
  bool special_tokens = false;  // recognized in texts (data/document_encoder.h)
  Packing packing = Packing::Auto;
  LossOn loss_on = LossOn::Completions;
  bool shuffle = true;
  SamplerKind sampler = SamplerKind::Trivet;  // data/sampler.h
  bool only_evaluated = false;                // no key: set by who trains on nothing
  // With the sampler PyTorch: leave out samples that cannot be divided evenly among the ranks, and the last, shorter batch.
  bool drop_last = false, drop_last_batch = false;
  // Of images (data/image_source.h):
  ImageFormat format = ImageFormat::Auto;
  std::vector<double> mean{0}, deviation{1};  // of each channel, or one for all
  int64_t crop_padding = 0;
  bool flip = false;

  bool is_given() const { return !train.empty() || !sources.empty(); }
  std::string train_name() const;  // for messages: `train`, or the paths of all sources
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
  std::string directory;    // of each host, on a file system in memory
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
  std::string interface;                // of this host: a name or a network; empty: the one that reaches rank 0's host
  SumsChoice sums = SumsChoice::Chain;  // of floats
  double join_seconds = 30;             // until all ranks have joined
  double silence_seconds = 4.25;        // until a rank that sends no heartbeats is lost
  double progress_seconds = 600;        // until a rank that is alive but does not enter an operation ends the job
};

// Of csv_monitor and of tensorboard.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;
  std::string job_name = "DeepSpeedJobName";
};

struct RunConfig {
  std::string directory;   // what made the run and what it measured (report/run_files.h); empty: nothing is kept
  double peak_tflops = 0;  // of one rank's device, for model FLOPs utilization; 0: not known
};

struct TimelineConfig {
  int64_t step = 0;   // 0: no step is recorded
  int64_t steps = 3;  // number of steps recorded
  std::string directory = "timeline";
};

// What the operations of one step cost, block by block (engine/timeline/work_profile.h).
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
