// Decides what to try next, from what was tried and what was predicted.
//
//   gridsearch    in the order of the space
//   random        in an order drawn from a seed
//   model_based   predictions of a step model, corrected by the trials: log cost = prediction + what a Gaussian process over
//                 the features of a config has learned about the difference; the config with the largest expected improvement
//                 is next (Jones, Schonlau, Welch: Efficient Global Optimization, 1998); of several equally good ones, the one
//                 that needs least memory
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/config/config.h"

namespace trivet::autotune {

// A config as a tuner sees it.
struct Point {
  std::vector<double> features;  // the same number in every point; a difference of 1 matters
  double predicted = 0;          // log cost, up to a constant that all points share
  int64_t memory_bytes = 0;      // decides between points that are equally good
};

struct Observation {
  size_t point = 0;
  std::optional<double> cost;  // log cost, less is better; none: it could not run
};

class Tuner {
 public:
  virtual ~Tuner() = default;
  // A point that is not in the history; none if all are.
  virtual std::optional<size_t> next(std::span<const Observation> history) = 0;
};

std::unique_ptr<Tuner> make_tuner(TunerType type, std::vector<Point> points, uint64_t seed);

// True if the last `limit` trials did not improve on the best before them; never with 0.
bool stops_early(std::span<const Observation> history, int64_t limit);

// The features of a trial's config: ZeRO stage, microbatch, axes, schedule, recomputation, overlap.
std::vector<double> features_of(const Config& config, int world_size);

}  // namespace trivet::autotune
