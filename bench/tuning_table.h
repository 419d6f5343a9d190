// A space of configs that were all measured (bench/tune), for replaying tuners without running anything. The file is
//
//   {"config": {...}, "world_size": 2, "hardware": "...",
//    "trials": [{"name": ..., "overrides": [...], "predicted_seconds": ..., "seconds": ...}, ...]}
//
// with the trials in the order of a grid search.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autotune/tune/tuner.h"
#include "autotune/tune/tuning_space.h"
#include "core/file_system.h"

namespace trivet::bench {

struct TuningTable {
  std::string hardware;
  std::vector<std::string> names;
  std::vector<autotune::Point> points;
  std::vector<double> seconds;  // times of a step; all have the same batch
};

inline TuningTable read_tuning_table(const std::string& path) {
  const auto json = nlohmann::json::parse(read_text(real_file_system(), path, int64_t{64} << 20));
  const autotune::ConfigDocument document{json.at("config").dump(), path, {}};
  TuningTable table{.hardware = json.at("hardware")};
  for (const auto& trial : json.at("trials")) {
    const Config config = document.config(trial.at("overrides").get<std::vector<std::string>>());
    table.names.push_back(trial.at("name"));
    table.points.push_back({.features = autotune::features_of(config, json.at("world_size").get<int>()),
                            .predicted = std::log(trial.at("predicted_seconds").get<double>())});
    table.seconds.push_back(trial.at("seconds"));
  }
  return table;
}

// Returns, for each of the first `trials` trials, the best throughput so far as a share of the best of all configs.
inline std::vector<double> replay(const TuningTable& table, TunerType type, uint64_t seed, size_t trials) {
  const auto tuner = autotune::make_tuner(type, table.points, seed);
  const double least = *std::ranges::min_element(table.seconds);
  std::vector<autotune::Observation> history;
  std::vector<double> curve;
  double best = std::numeric_limits<double>::infinity();
  while (curve.size() < trials) {
    const auto next = tuner->next(history);
    if (!next) break;
    best = std::min(best, table.seconds[*next]);
    history.push_back({.point = *next, .cost = std::log(table.seconds[*next])});
    curve.push_back(least / best);
  }
  return curve;
}

}  // namespace trivet::bench
