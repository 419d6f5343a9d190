// Writes one JSON object per step, for programs: --metrics FILE.jsonl.
//
//   {"step": 1, "loss": 4.1837, "loss_bits": "4085e0df", "lr": 1e-05, "grad_norm": 5.53, "tokens": 768, "step_ms": 86.1,
//    "tokens_per_second": 8930.4, "memory_bytes": 17825792}
//
// (on one line). A skipped step also has "skipped": true, and with loss scaling there is "loss_scale". A number that is not
// finite is null; loss_bits keeps it exactly. In a step without targets, "loss", "loss_bits" and "grad_norm" are null. "tokens"
// is the number of targets that were counted; if the model reads more, prompts and padding, "tokens_read" is how many. A run
// that trains on images has "images" and "images_per_second" instead. Evaluations go to FILE.evaluation.jsonl: {"step", "loss",
// "loss_bits", "tokens" or "images", "ms"}, and "correct", the number of right answers, if the model chooses classes.
//
// A run on pairs of answers has "pairs" and "pairs_per_second". Steps and evaluations have "correct" and, by the names of TRL,
// "rewards/chosen", "rewards/rejected" and "rewards/margins"; steps also have "rewards/accuracies".
//
// A run that starts at step 0 empties the files first. A resumed run first cuts off the lines of the steps that it will repeat,
// and an incomplete line that a killed run may have left. So a file that another process writes to is refused. Only a job that
// was started again takes it over with a warning, because a rank of the start before may live on.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "report/monitor/monitor.h"
#include "report/monitor/output_file.h"

namespace trivet::monitor {

class JsonlMonitor : public Monitor {
 public:
  // `wait`: for another process to let go of the file; none: it is taken over.
  explicit JsonlMonitor(std::string path, std::optional<std::chrono::milliseconds> wait = std::chrono::seconds(5))
      : path_(std::move(path)), wait_(wait) {}
  void on_start(const RunStart& start) override;
  void on_step(const StepMetrics& metrics) override;
  void on_evaluation(const Evaluation& evaluation) override;

 private:
  std::string path_;
  std::optional<std::chrono::milliseconds> wait_;
  TargetWords words_ = kTokens;
  std::optional<OutputFile> steps_, evaluations_;
};

// Checks whether a file that begins so is this monitor's: its first line is a step or an evaluation, or half of one.
bool is_metrics(std::string_view beginning);

std::string to_json_line(const StepMetrics& metrics, const TargetWords& words = kTokens);
// "runs/metrics.jsonl" -> "runs/metrics.evaluation.jsonl"
std::string evaluation_path(const std::string& path);

}  // namespace trivet::monitor
