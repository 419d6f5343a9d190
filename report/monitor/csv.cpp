#include "report/monitor/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "report/monitor/number_text.h"
#include "report/monitor/scalars.h"

namespace trivet::monitor {
namespace {

std::string file_name_of(std::string_view of_tag) {
  std::string tag(of_tag);
  std::replace_if(
      tag.begin(), tag.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  return tag + ".csv";
}

}  // namespace

bool is_csv_of_monitor(std::string_view beginning) { return beginning.starts_with("step,"); }

CsvMonitor::CsvMonitor(const std::string& output_path, const std::string& job_name)
    : folder_((std::filesystem::path(output_path) / job_name).string()) {}

void CsvMonitor::write(std::string_view tag, int64_t samples, double value) {
  auto found = files_.find(tag);
  if (found == files_.end()) {
    const std::string path = (std::filesystem::path(folder_) / file_name_of(tag)).string();
    found = files_.emplace(std::string(tag), files_.empty() ? OutputFile(path) : OutputFile::opened_late(path)).first;
    found->second.write(fmt::format("step,{}\r\n", tag.substr(tag.rfind('/') + 1)));
  }
  found->second.write(fmt::format("{},{}\r\n", samples, python_float(value)));
}

void CsvMonitor::on_step(const StepMetrics& metrics) {
  for (const Scalar& scalar : scalars_of(metrics)) write(scalar.tag, metrics.samples, scalar.value);
}

void CsvMonitor::on_evaluation(const Evaluation& evaluation) {
  for (const Scalar& scalar : scalars_of(evaluation)) write(scalar.tag, evaluation.samples, scalar.value);
}

}  // namespace trivet::monitor
