#include "engine/monitor/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "engine/monitor/number_text.h"

namespace trivet::monitor {
namespace {

std::string file_name_of(std::string tag) {
  std::replace_if(
      tag.begin(), tag.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  return tag + ".csv";
}

}  // namespace

CsvMonitor::CsvMonitor(const std::string& output_path, const std::string& job_name)
    : folder_((std::filesystem::path(output_path) / job_name).string()) {}

void CsvMonitor::write(const std::string& tag, int64_t samples, double value) {
  auto found = files_.find(tag);
  if (found == files_.end()) {
    found = files_.emplace(tag, OutputFile((std::filesystem::path(folder_) / file_name_of(tag)).string())).first;
    found->second.write("step," + tag.substr(tag.rfind('/') + 1) + "\r\n");
  }
  found->second.write(fmt::format("{},{}\r\n", samples, python_float(value)));
}

void CsvMonitor::on_step(const StepMetrics& metrics) {
  write("Train/Samples/train_loss", metrics.samples, metrics.loss);
  write("Train/Samples/lr", metrics.samples, metrics.lr);
  if (metrics.loss_scale != 0) write("Train/Samples/loss_scale", metrics.samples, metrics.loss_scale);
  write("Train/Samples/grad_norm", metrics.samples, metrics.grad_norm);
}

void CsvMonitor::on_evaluation(const Evaluation& evaluation) {
  write("Train/Samples/eval_loss", evaluation.samples, evaluation.loss);
  if (evaluation.correct && evaluation.targets > 0)
    write("Train/Samples/eval_accuracy", evaluation.samples,
          static_cast<double>(*evaluation.correct) / static_cast<double>(evaluation.targets));
}

}  // namespace trivet::monitor
