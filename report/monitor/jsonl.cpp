#include "report/monitor/jsonl.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "report/monitor/number_text.h"

namespace trivet::monitor {
namespace {

constexpr std::string_view kStepKey = "{\"step\": ";

// The number of bytes in the complete lines at the beginning of the file whose step is at most `last`.
uintmax_t bytes_to_keep(const std::string& path, int64_t last) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  uintmax_t kept = 0;
  while (std::getline(file, line)) {
    const bool whole = !file.eof();
    if (!whole || !line.starts_with(kStepKey) || std::strtoll(line.c_str() + kStepKey.size(), nullptr, 10) > last) break;
    kept += line.size() + 1;
  }
  return kept;
}

void cut_after(const std::string& path, int64_t last) {
  if (!std::filesystem::is_regular_file(path)) return;
  std::error_code error;
  std::filesystem::resize_file(path, last > 0 ? bytes_to_keep(path, last) : 0, error);
  if (error) throw Error(ExitCode::Usage, path + ": cannot be written: " + error.message());
}

std::string rewards_json(const std::optional<Rewards>& rewards) {
  if (!rewards) return "";
  return fmt::format(R"(, "rewards/chosen": {}, "rewards/rejected": {}, "rewards/margins": {})", json_number(rewards->chosen),
                     json_number(rewards->rejected), json_number(rewards->margin()));
}

// Without targets a mean has no value, and so no bits.
std::string mean_json(double value, bool without_targets) { return without_targets ? "null" : json_number(value); }
std::string bits_json(uint32_t bits, bool without_targets) {
  return without_targets ? "null" : fmt::format("\"{}\"", hexadecimal_bits(bits));
}

std::string correct_json(const std::optional<int64_t>& correct) {
  return correct ? fmt::format(", \"correct\": {}", *correct) : "";
}

// One number for each block that has experts.
std::string experts_json(const std::vector<ExpertLoad>& experts) {
  if (experts.empty()) return "";
  std::string blocks, fullest, idle;
  for (const ExpertLoad& block : experts) {
    const char* comma = blocks.empty() ? "" : ", ";
    blocks += fmt::format("{}\"{}\"", comma, block.layer);
    fullest += fmt::format("{}{:.4g}", comma, block.fullest());
    idle += fmt::format("{}{}", comma, block.idle());
  }
  return fmt::format(R"(, "experts": {{"layers": [{}], "fullest": [{}], "idle": [{}]}})", blocks, fullest, idle);
}

}  // namespace

bool is_metrics(std::string_view beginning) {
  const size_t end = beginning.find('\n');
  const std::string_view line = beginning.substr(0, end);
  const bool is_whole = end != std::string_view::npos;
  return is_whole ? line.starts_with(kStepKey) && line.find("\"loss_bits\": ") != std::string_view::npos
                  : line.starts_with(kStepKey) || kStepKey.starts_with(line);
}

std::string to_json_line(const StepMetrics& metrics, const TargetWords& words) {
  std::string line = fmt::format(
      "{{\"step\": {}, \"loss\": {}, \"loss_bits\": {}, \"lr\": {}, \"grad_norm\": {}, \"{words}\": {}, \"step_ms\": {}, "
      "\"{words}_per_second\": {}, \"memory_bytes\": {}",
      metrics.step, mean_json(metrics.loss, metrics.without_targets), bits_json(metrics.loss_bits, metrics.without_targets),
      json_number(metrics.lr), mean_json(metrics.grad_norm, metrics.without_targets), metrics.targets,
      json_number(metrics.step_ms), json_number(metrics.targets_per_second), metrics.memory_bytes,
      fmt::arg("words", words.many));
  if (metrics.tokens_read > metrics.targets) line += fmt::format(", \"tokens_read\": {}", metrics.tokens_read);
  if (metrics.loss_scale != 0) line += ", \"loss_scale\": " + json_number(metrics.loss_scale);
  if (metrics.skipped) line += ", \"skipped\": true";
  line += correct_json(metrics.correct);
  if (const auto accuracy = metrics.accuracy()) line += ", \"rewards/accuracies\": " + json_number(*accuracy);
  if (!metrics.without_targets) line += rewards_json(metrics.rewards);
  line += experts_json(metrics.experts);
  return line + "}\n";
}

std::string evaluation_path(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / (whole.stem().string() + ".evaluation" + whole.extension().string())).string();
}

void JsonlMonitor::on_start(const RunStart& start) {
  steps_.emplace(wait_ ? OutputFile::of_this_run(path_, *wait_) : OutputFile(path_));
  cut_after(path_, start.steps_done);
  cut_after(evaluation_path(path_), start.steps_done);
  words_ = start.targets;
}

void JsonlMonitor::on_step(const StepMetrics& metrics) {
  if (!steps_) steps_.emplace(path_);
  steps_->write(to_json_line(metrics, words_));
}

void JsonlMonitor::on_evaluation(const Evaluation& evaluation) {
  if (!evaluations_) evaluations_ = OutputFile::opened_late(evaluation_path(path_));
  evaluations_->write(fmt::format(
      "{{\"step\": {}, \"loss\": {}, \"loss_bits\": {}, \"{}\": {}, \"ms\": {}{}}}\n", evaluation.step,
      mean_json(evaluation.loss, evaluation.without_targets), bits_json(evaluation.loss_bits, evaluation.without_targets),
      words_.many, evaluation.targets, json_number(evaluation.ms),
      correct_json(evaluation.correct) + (evaluation.without_targets ? "" : rewards_json(evaluation.rewards))));
}

}  // namespace trivet::monitor
