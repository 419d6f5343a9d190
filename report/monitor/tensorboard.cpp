#include "report/monitor/tensorboard.h"

#include <chrono>
#include <filesystem>

namespace trivet::monitor {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Indented text is shown as it is, whatever it contains.
std::string as_markdown(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string text;
  for (const auto& [what, value] : facts) text += "    " + what + "  " + value + "\n";
  return text;
}

}  // namespace

TensorBoardMonitor::TensorBoardMonitor(const std::string& output_path, const std::string& job_name)
    : folder_((std::filesystem::path(output_path) / job_name).string()) {}

void TensorBoardMonitor::on_start(const RunStart& start) {
  file_.emplace(folder_);
  speed_tag_ = "Train/Samples/" + std::string(start.targets.many) + "_per_second";
  const double now = seconds_since_1970();
  file_->write(first_event(now));
  file_->write(session_start_event(now, start.samples_done + 1));
  file_->write(text_event(now, start.samples_done + 1, "run", as_markdown(start.facts)));
}

void TensorBoardMonitor::on_step(const StepMetrics& metrics) {
  std::vector<Scalar> scalars = scalars_of(metrics);
  scalars.push_back({speed_tag_, metrics.targets_per_second});
  scalars.push_back({"Train/Samples/step_ms", metrics.step_ms});
  scalars.push_back({"Train/Samples/memory_bytes", static_cast<double>(metrics.memory_bytes)});
  file_->write(scalars_event(seconds_since_1970(), metrics.samples, scalars));
}

void TensorBoardMonitor::on_evaluation(const Evaluation& evaluation) {
  if (evaluation.without_targets) return;
  file_->write(scalars_event(seconds_since_1970(), evaluation.samples, scalars_of(evaluation)));
}

}  // namespace trivet::monitor
