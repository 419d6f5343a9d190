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

namespace trivet {

// What a checkpoint keeps of a LossScale (engine/loss_scale.h).
struct LossScaleState {
  double scale = 1;
  int64_t clean_steps = 0;  // since the last overflow
  int64_t hysteresis = 1;   // overflows until the scale is halved
  bool operator==(const LossScaleState&) const = default;
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
  std::optional<LossScaleState> loss_scale;  // in an fp16 run with a dynamic scale
  std::string data;                          // digest; empty: saved by a program that does not give one
  std::string tokenizer;                     // empty: none

  // Whether the last step was not skipped, so that these weights were just trained.
  bool clean() const { return skipped_in_a_row == 0; }
};

std::string to_text(const RunState& state);
// Throws CheckpointError (CheckpointCorrupt) with `where`, the field, its value and what is accepted.
RunState parse_run_state(std::string_view text, const std::string& where);

}  // namespace trivet::checkpoint
