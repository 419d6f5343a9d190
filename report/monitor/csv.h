// DeepSpeed's csv_monitor, byte for byte: one file per tag, <output_path>/<job_name>/Train_Samples_lr.csv, with lines
// "samples,value" under a header "step,lr" (the axis is samples although the header says step), CRLF line ends, and the header
// once more after a restart. scalars.h lists the tags.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "report/monitor/monitor.h"
#include "report/monitor/output_file.h"

namespace trivet::monitor {

class CsvMonitor : public Monitor {
 public:
  CsvMonitor(const std::string& output_path, const std::string& job_name);
  void on_step(const StepMetrics& metrics) override;
  void on_evaluation(const Evaluation& evaluation) override;

 private:
  void write(std::string_view tag, int64_t samples, double value);

  std::string folder_;
  std::map<std::string, OutputFile, std::less<>> files_;  // by tag
};

// Checks whether a file that begins like this is of this monitor.
bool is_csv_of_monitor(std::string_view beginning);

}  // namespace trivet::monitor
