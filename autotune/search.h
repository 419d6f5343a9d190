// All layouts of a model on a cluster, tried with the StepModel: which is fastest of those that fit, and why the others lose.
//
// What does not divide the model or the batch is left out (search_space.h). What does not fit is known by its memory alone: its
// time is asked for only where it is shown.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autotune/search_space.h"
#include "autotune/step_model.h"

namespace trivet::autotune {

struct Candidate {
  Layout layout;
  StepPrediction step;
  ConfigKeys config;  // to train with it
};

// A value of one choice that the best layout does not have: how far the best layout with it is behind, and by what.
struct Alternative {
  std::string choice;  // "tensor 8", "stage 1"
  bool fits = false;
  Candidate best;   // of those that have it; the one that lacks least memory where none fits
  std::string why;  // "12.3 GiB over at best", "31.0 % slower: exposed tensor axis 37 % of the step, 1.2 s more"
};

// Of a layout that the StepModel has fitting and faster than the best, and that is not taken.
struct Refuted {
  Candidate candidate;
  std::string why;  // "0.1 GiB over by its plan"
};

struct SearchResult {
  std::vector<Candidate> ranking;  // that fit, the fastest first
  bool planned = false;            // the bytes of the first are its plan's
  std::vector<Refuted> refuted;    // the fastest first
  std::vector<Alternative> alternatives;
  std::vector<Candidate> fastest;  // of each tensor and pipeline size of which some fit
  Candidate smallest;              // lacks least memory of all, or has most to spare
  // Where none fits: the fastest of the nearest doubling of devices that some do on, as far as the cluster goes. Its batch is
  // larger than the one asked for where that one's layouts do not fit on them.
  std::optional<Candidate> nearest;
  int64_t tried = 0, fitting = 0;
  double seconds = 0;  // that the search took
};

// What a device holds by the plan of the searched config with these keys. Throws ConfigError where the engine refuses it.
using PlannedBytes = std::function<StepBytes(const ConfigKeys&)>;

// With `planned`, which takes from a second to minutes, the fastest that fit are planned until one fits by its plan too, a few
// at most. Throws ConfigError where no layout divides the model and the batch among so many devices, saying what does.
SearchResult search(const model::Model& model, const Cluster& cluster, const SearchSpace& space, size_t ranked = 20,
                    const PlannedBytes& planned = {});

// "12.3 GiB over", "1.5 GiB over in host memory"; of what does not fit.
std::string shortage(const StepBytes& bytes, const Cluster& cluster);
// "64 devices would do: pipeline 8 x ..., with train_batch_size 64 instead of 16"; or that none would. Where nothing fits.
std::string what_would_fit(const SearchResult& result, const Cluster& cluster);

// A table of the ranking and why the others lose; where nothing fits, what is short and what would.
std::string to_text(const SearchResult& result, const Cluster& cluster);
std::string to_json(const SearchResult& result, const Cluster& cluster);

}  // namespace trivet::autotune
