#include "report/predictions_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/bounded_file.h"
#include "core/error.h"
#include "core/log.h"
#include "core/replace_file.h"
#include "report/read_run.h"

namespace trivet::report {
namespace {

constexpr int64_t kMostPredictionsBytes = int64_t{64} << 20;

// Returns 0 or errno.
int replace_text(const std::string& path, const std::string& text) {
  try {
    replace_file(real_file_system(), path, text);
    return 0;
  } catch (const FileError& error) {
    return error.error_number();
  }
}

// A machine that went down may have left part of a file.
bool holds_predictions_until(const std::string& path, int64_t last_step) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const BoundedText file = read_bounded(path, kMostPredictionsBytes, "a file of a run");
  try {
    return file.problem.empty() && parse_predictions(file.text, path).step <= last_step;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

void PredictionsFile::on_start(const monitor::RunStart& start) {
  std::error_code none;  // it is no error if there is no file
  if (start.steps_done == 0 || !holds_predictions_until(path_, start.steps_done)) std::filesystem::remove(path_, none);
}

void PredictionsFile::on_predictions(const monitor::ShownPredictions& predictions) {
  if (failed_) return;
  const int error = replace_text(path_, to_json(predictions));
  if (error == 0) return;
  failed_ = true;
  Log().warning(fmt::format("{}: predictions cannot be written: {}; the run continues without this file", escape_control(path_),
                            std::strerror(error)));
}

std::string to_json(const monitor::ShownPredictions& predictions) {
  nlohmann::ordered_json json{{"step", predictions.step}, {"samples", nlohmann::ordered_json::array()}};
  for (const monitor::ShownPrediction& sample : predictions.samples) {
    nlohmann::ordered_json one{
        {"sample", sample.sample}, {"right", sample.right}, {"target", sample.target}, {"predicted", sample.predicted}};
    if (sample.png.empty()) {
      one["before"] = sample.before;
    } else {
      one["png"] = to_base64(sample.png);
    }
    json["samples"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trivet::report
