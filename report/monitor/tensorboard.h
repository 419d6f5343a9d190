// Writes a run for TensorBoard: DeepSpeed's tags (scalars.h) at the number of samples so far, in the folder that DeepSpeed's
// keys name, <output_path>/<job_name>; and Train/Samples/{tokens_per_second (or images_per_second), step_ms, memory_bytes}.
// The tab "Text" shows what the console prints about the run.
//
// Each run writes a file of its own. It declares void what earlier files of the folder say about the samples that this run will
// see again, so that TensorBoard shows one line for a run that was resumed from an earlier step, or begun anew.
#pragma once

#include <optional>
#include <string>

#include "report/monitor/event_file.h"
#include "report/monitor/monitor.h"

namespace trivet::monitor {

class TensorBoardMonitor : public Monitor {
 public:
  TensorBoardMonitor(const std::string& output_path, const std::string& job_name);
  void on_start(const RunStart& start) override;
  void on_step(const StepMetrics& metrics) override;
  void on_evaluation(const Evaluation& evaluation) override;

 private:
  std::string folder_;
  std::optional<EventFile> file_;  // from the start on
  std::string speed_tag_;
};

}  // namespace trivet::monitor
