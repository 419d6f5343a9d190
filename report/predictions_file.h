// Keeps the predictions of the last evaluation in the folder of a run, as one JSON object:
//
//   {"step": 600, "samples": [{"sample": 17, "right": false, "target": "7", "predicted": "1", "png": "iVBORw0..."}, ...]}
//
// "png" is the file of an image, in base64. A sample of text has "before" instead: what comes before the target.
#pragma once

#include <string>

#include "report/monitor/monitor.h"

namespace trivet::report {

// The file is replaced as a whole. If it cannot be written, the log says so once, and the run continues. A run that starts
// removes a file of steps that it will repeat, and one that is damaged.
class PredictionsFile : public monitor::Monitor {
 public:
  explicit PredictionsFile(std::string path) : path_(std::move(path)) {}
  void on_start(const monitor::RunStart& start) override;
  void on_predictions(const monitor::ShownPredictions& predictions) override;

 private:
  std::string path_;
  bool failed_ = false;
};

std::string to_json(const monitor::ShownPredictions& predictions);

}  // namespace trivet::report
