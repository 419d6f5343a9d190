#include "engine/report/predictions_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "engine/report/base64.h"

namespace trivet::report {
namespace {

bool replace_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  const bool written = static_cast<bool>(file << text << std::flush);
  file.close();
  return written && std::rename(temporary.c_str(), path.c_str()) == 0;
}

}  // namespace

// A run that begins anew has no predictions yet.
void PredictionsFile::on_start(const monitor::RunStart& start) {
  std::error_code none;  // that there is no file is no error
  if (start.steps_done == 0) std::filesystem::remove(path_, none);
}

void PredictionsFile::on_predictions(const monitor::ShownPredictions& predictions) {
  if (failed_ || replace_text(path_, to_json(predictions))) return;
  failed_ = true;
  Log().warning(fmt::format("{}: predictions cannot be written: {}; the run continues without this file", escape_control(path_),
                            std::strerror(errno)));
}

std::string to_json(const monitor::ShownPredictions& predictions) {
  nlohmann::ordered_json json{{"step", predictions.step}, {"samples", nlohmann::ordered_json::array()}};
  for (const monitor::ShownPrediction& sample : predictions.samples) {
    nlohmann::ordered_json one{
        {"sample", sample.sample}, {"right", sample.right}, {"target", sample.target}, {"predicted", sample.predicted}};
    if (sample.png.empty()) {
      one["before"] = sample.before;
    } else {
      one["png"] = base64(sample.png);
    }
    json["samples"].push_back(std::move(one));
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace trivet::report
