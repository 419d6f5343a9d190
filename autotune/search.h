// Tries all layouts of a model on a cluster with the StepModel, to find the fastest that fits and why the others lose. A layout
// fits if it leaves the device's reserve free (cluster.h, Note: memory in reserve).
//
// Layouts that do not divide the model or the batch are left out (search_space.h). Whether a layout fits is known from its
// memory alone; if it does not, its time is predicted only to be shown.
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
  ConfigKeys config;                       // to train with it
  std::vector<int64_t> other_chunks = {};  // with which the same layout is slower and not ranked
};

// A value of one choice that the best layout does not have: how much slower the best layout with this value is, and why.
struct Alternative {
  std::string choice;  // "tensor 8", "stage 1"
  bool fits = false;
  Candidate best;   // the best with this value; the one that lacks least memory if none fits
  std::string why;  // "12.3 GiB over at best", "31.0 % slower: exposed tensor axis 37 % of the step, 1.2 s more"
};

// A layout that fits and is faster than the best according to the StepModel, but that its plan rules out.
struct Refuted {
  Candidate candidate;
  std::string why;  // "0.1 GiB over by its plan"
};

struct SearchResult {
  // Layouts that fit, the fastest first; among those as fast, within 0.05 %, the one that needs least of a device comes
  // first. For layouts that differ in chunks alone, the first stands for all.
  std::vector<Candidate> ranking;
  bool planned = false;          // the bytes of the first are from its plan
  std::vector<Refuted> refuted;  // in the order of the ranking
  std::vector<Alternative> alternatives;
  std::string context;             // whether layouts with context ranks were tried and why; empty: the model cannot have any
  std::string expert;              // which sizes of parallel.expert were tried, and what is refused; empty: there is no choice
  std::vector<Candidate> fastest;  // one for each tensor and pipeline size with which some layout fits
  Candidate smallest;              // the layout that lacks least memory or has most to spare
  // If none fits: the fastest layout for the first doubling of the devices for which some layout fits, within the cluster. Its
  // batch is larger than the requested one if no layout with that batch fits on those devices.
  std::optional<Candidate> nearest;
  int64_t tried = 0, fitting = 0;
  // Seconds of a step if links between nodes had half the bandwidth: of the first, and the least of those ranked.
  double with_half_network = 0, best_with_half_network = 0;
  Layout best_layout_with_half_network = {};
  double seconds = 0;  // duration of the search
};

// Returns what a device holds according to the plan of the searched config with these keys. Throws ConfigError if the
// engine refuses the config.
using PlannedBytes = std::function<StepBytes(const ConfigKeys&)>;
// Called for each layout that a search tries, with the number of devices and how many layouts were tried on them before it.
using SearchProgress = std::function<void(int64_t devices, int64_t tried)>;

// With `planned`, which takes from a second to minutes, the fastest layouts that fit are planned until one also fits by its
// plan, a few at most. Throws ConfigError if no layout divides the model and the batch among the devices; the message says
// which numbers of devices can be used.
SearchResult search(const model::Model& model, const Cluster& cluster, const SearchSpace& space, size_t ranked = 20,
                    const PlannedBytes& planned = {}, const SearchProgress& progress = {});

// "pipeline 8 x ..., interleaved with 2 chunks, ... (slower: 4, 8)": the layout, and the chunks that are slower.
std::string layout_text(const Candidate& candidate);
// How much of the first's communication is hidden, and what a slower network costs; nothing on one device.
std::vector<std::string> network_lines(const SearchResult& result, const Cluster& cluster);
// "12.3 GiB over", "1.5 GiB over in host memory"; for what does not fit.
std::string shortage(const StepBytes& bytes, const Cluster& cluster);
// "64 devices are enough: pipeline 8 x ..., with train_batch_size 64 instead of 16"; or that no number is. For a search in
// which nothing fits.
std::string what_would_fit(const SearchResult& result, const Cluster& cluster);

// A table of the ranking and why the others lose; if nothing fits, what is short and what would fit.
// `tokens`: a number of tokens, whose time and cost with the first are also stated; 0: none is.
std::string to_text(const SearchResult& result, const Cluster& cluster, double tokens = 0);
std::string to_json(const SearchResult& result, const Cluster& cluster, double tokens = 0);

}  // namespace trivet::autotune
