// The progress of a run, which a checkpoint keeps in addition to tensors: the text `state` of a manifest
// (docs/checkpoint_format.md).
//
// Each field has a type and a range, which parse_run_state() checks: a checksum shows only that the text is the one that was
// written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet {

// The part of a LossScale (engine/optimizer/loss_scale.h) that a checkpoint keeps.
struct LossScaleState {
  double scale = 1;
  int64_t clean_steps = 0;  // since the last overflow
  int64_t hysteresis = 1;   // overflows until the scale is halved
  bool operator==(const LossScaleState&) const = default;
};

// The record of evaluations that a checkpoint keeps if the run chooses its best step or ends early.
struct EvaluationState {
  int64_t step = 0;                 // the last step that was evaluated; 0: none
  int64_t best_step = 0;            // the step with the lowest loss so far; 0: none
  double best_loss = 0;             // loss of that step
  int64_t without_improvement = 0;  // evaluations in a row up to `step`
  bool operator==(const EvaluationState&) const = default;
};

// The record that a checkpoint keeps of a file of data that grows (data/growing_data.h).
struct DataFileState {
  int64_t first_epoch = 0;  // first epoch that reads it, counted from 0
  std::string name;         // in the folder data.train
  std::string digest;
  bool operator==(const DataFileState&) const = default;
};

}  // namespace trivet

namespace trivet::checkpoint {

inline constexpr int64_t kMaxSteps = 1'000'000'000'000;  // a step each millisecond for 31 years

struct RunState {
  int64_t steps = 0;    // done, including skipped ones
  int64_t updates = 0;  // steps not skipped
  int64_t skipped_in_a_row = 0;
  int64_t seed = 0;
  int64_t train_batch_size = 1, micro_batch_size = 1;
  std::optional<LossScaleState> loss_scale;    // in an fp16 run with a dynamic scale
  std::optional<EvaluationState> evaluations;  // if they decide which step is kept, or when the run ends
  int64_t steps_per_epoch = 0;                 // 0: a step may span two epochs
  std::string data;                            // digest; empty: saved by a program that does not give one
  std::vector<DataFileState> data_files;       // in the order of their epochs; empty: the data does not grow
  std::string tokenizer;                       // empty: none
  std::string reference;                       // for pairs of answers (trainer/pair_references.h); empty: none

  // Checks whether the last step was not skipped, so that these weights were just trained.
  bool clean() const { return skipped_in_a_row == 0; }
  // The step that retention never removes; 0: none.
  int64_t best_step() const { return evaluations ? evaluations->best_step : 0; }
};

std::string to_text(const RunState& state);
// Throws CheckpointError (CheckpointCorrupt) with `where`, the field, its value and what is accepted.
RunState parse_run_state(std::string_view text, const std::string& where);

}  // namespace trivet::checkpoint
