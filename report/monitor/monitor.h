// Reports a run while it is running: each step and each evaluation, to a console and to files. World rank 0 has monitors, the
// other ranks have none. A monitor only listens: it never changes the run. One thread at a time.
//
//   on_start  (on_step | on_evaluation | on_predictions | on_checkpoint | on_note)*  on_end
//
// A step's number is the number of steps done after it: the first step is 1, and a run that resumes from the checkpoint of step
// N continues with step N + 1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/expert_load.h"

namespace trivet::monitor {

// The words for the targets of a run, on the console, in files and on pages.
struct TargetWords {
  std::string_view many, short_many;  // "tokens", "tok"

  bool operator==(const TargetWords&) const = default;
};
inline constexpr TargetWords kTokens{"tokens", "tok"}, kImages{"images", "img"}, kPairs{"pairs", "pairs"};
inline constexpr TargetWords kTargets{"targets", "targets"};  // for several runs with different targets

struct RunStart {
  // Printed one per line, with control characters escaped: {"model", "gpt, 4 layers x 128, 809,856 parameters"}, {"data", ...},
  // {"plan", ...}
  std::vector<std::pair<std::string, std::string>> facts = {};
  int64_t steps_done = 0;    // > 0: resumed
  int64_t samples_done = 0;  // in these steps
  int64_t total_steps = 0;   // the step number at which the run ends
  // The live page, if there is one. It contains a secret: only the console shows it.
  std::string address = {};
  TargetWords targets = kTokens;
  bool learns_answers = false;  // prompts, and what pads a sample, are read but are no targets
  bool has_experts = false;
};

// Means, over pairs of answers, of the scores by which the model prefers them (kernels/preference_rule.h).
struct Rewards {
  double chosen = 0, rejected = 0;

  double margin() const { return chosen - rejected; }
};

// Out of 1; none if the model does not choose, or no target was counted.
inline std::optional<double> accuracy_of(const std::optional<int64_t>& correct, int64_t targets) {
  if (!correct || targets == 0) return {};
  return static_cast<double>(*correct) / static_cast<double>(targets);
}

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;         // mean over the step's targets
  uint32_t loss_bits = 0;  // bits of the loss as float32
  double lr = 0, grad_norm = 0;
  double loss_scale = 0;       // used in this step; 0: no loss scaling
  double next_loss_scale = 0;  // for the next step
  int64_t samples = 0;         // in the run, including this step
  int64_t targets = 0;         // counted in this step by all ranks
  int64_t tokens_read = 0;     // likewise, for texts: with prompts and padding; 0 for other data
  double step_ms = 0, targets_per_second = 0;
  int64_t memory_bytes = 0;  // peak of world rank 0
  bool skipped = false;      // nothing was updated: because of an overflow, or for lack of targets
  // No target was counted. The loss, its bits and the norm of the gradients then have no value: they are not to be shown.
  bool without_targets = false;
  // For pairs of answers: the number in which the preferred answer has the higher reward, and the rewards.
  std::optional<int64_t> correct = {};
  std::optional<Rewards> rewards = {};
  std::vector<ExpertLoad> experts = {};  // of the blocks that have some

  std::optional<double> accuracy() const { return accuracy_of(correct, targets); }
  // Of all blocks: the most tokens of an expert, over the mean of its block, and the experts that are idle.
  double fullest_expert() const {
    double fullest = 1;
    for (const ExpertLoad& block : experts) fullest = std::max(fullest, block.fullest());
    return fullest;
  }
  int64_t idle_experts() const {
    int64_t idle = 0;
    for (const ExpertLoad& block : experts) idle += block.idle();
    return idle;
  }
};

struct Evaluation {
  int64_t step = 0;
  double loss = 0;
  uint32_t loss_bits = 0;
  int64_t samples = 0;             // in the run so far, as in StepMetrics
  int64_t targets = 0;             // targets that were counted
  bool without_targets = false;    // none was: there is no loss
  std::optional<int64_t> correct;  // correct targets, if the model chooses classes or tells answers apart
  std::optional<Rewards> rewards = {};
  double ms = 0;

  std::optional<double> accuracy() const { return accuracy_of(correct, targets); }
};

// A validation sample, and what the model predicts for it.
struct ShownPrediction {
  int64_t sample = 0;  // its number in the validation data
  bool right = false;
  std::string png;                // bytes of its image; empty: it is text
  std::string before;             // for text: the part before the target
  std::string target, predicted;  // as people call them; for text, each token is predicted from the true ones before it
};
struct ShownPredictions {
  int64_t step = 0;  // after which they were made
  std::vector<ShownPrediction> samples;
};

// The memory peak of one category, on world rank 0.
struct MemoryPeak {
  std::string category;  // "parameters"
  int64_t planned_bytes = 0, measured_bytes = 0;
};

struct RunEnd {
  std::vector<std::pair<std::string, std::string>> facts = {};  // {"checkpoint", "checkpoints, step 1000"}
  std::vector<MemoryPeak> memory = {};
};

class Monitor {
 public:
  virtual ~Monitor() = default;
  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepMetrics&) {}
  virtual void on_evaluation(const Evaluation&) {}
  virtual void on_predictions(const ShownPredictions&) {}  // follows on_evaluation of the same step, if there are any
  virtual void on_note(const std::pair<std::string, std::string>&) {}  // a fact that is known only during the run
  virtual void on_checkpoint(int64_t) {}                               // the save of this step has begun
  virtual void on_end(const RunEnd&) {}
};

// Forwards to several monitors, in the order in which they were added.
class Monitors : public Monitor {
 public:
  void add(std::unique_ptr<Monitor> monitor) { list_.push_back(std::move(monitor)); }
  void on_start(const RunStart& start) override {
    for (auto& monitor : list_) monitor->on_start(start);
  }
  void on_step(const StepMetrics& metrics) override {
    for (auto& monitor : list_) monitor->on_step(metrics);
  }
  void on_evaluation(const Evaluation& evaluation) override {
    for (auto& monitor : list_) monitor->on_evaluation(evaluation);
  }
  void on_predictions(const ShownPredictions& predictions) override {
    for (auto& monitor : list_) monitor->on_predictions(predictions);
  }
  void on_note(const std::pair<std::string, std::string>& note) override {
    for (auto& monitor : list_) monitor->on_note(note);
  }
  void on_checkpoint(int64_t step) override {
    for (auto& monitor : list_) monitor->on_checkpoint(step);
  }
  void on_end(const RunEnd& end) override {
    for (auto& monitor : list_) monitor->on_end(end);
  }

 private:
  std::vector<std::unique_ptr<Monitor>> list_;
};

}  // namespace trivet::monitor
