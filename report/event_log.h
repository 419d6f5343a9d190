// Writes what a run says apart from its steps and evaluations, one JSON object per line:
//
//   {"event": "start", "time": 1764054127, "step": 0, "total_steps": 1000, "facts": [["model", "gpt, ..."], ...]}
//   {"event": "checkpoint", "time": ..., "step": 500}
//   {"event": "note", "time": ..., "step": 50, "what": "timeline", "text": "..."}
//   {"event": "end", "time": ..., "step": 1000, "facts": [...], "memory": [["parameters", planned bytes, measured bytes], ...]}
//
// "time" is in seconds since 1970. Lines are only appended, also by a resumed run; a run that starts at step 0 empties the
// file.
#pragma once

#include <optional>
#include <string>

#include "report/monitor/monitor.h"
#include "report/monitor/output_file.h"

namespace trivet::report {

class EventLog : public monitor::Monitor {
 public:
  explicit EventLog(std::string path) : path_(std::move(path)) {}
  void on_start(const monitor::RunStart& start) override;
  void on_step(const monitor::StepMetrics& metrics) override { step_ = metrics.step; }
  void on_note(const std::pair<std::string, std::string>& note) override;
  void on_checkpoint(int64_t step) override;
  void on_end(const monitor::RunEnd& end) override;

 private:
  std::string path_;
  std::optional<monitor::OutputFile> file_;  // from the start on
  int64_t step_ = 0;
};

}  // namespace trivet::report
