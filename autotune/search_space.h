// What the search tries: every layout that divides a number of devices, a model and a batch. Nothing is sampled.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autotune/step_model.h"

namespace trivet::autotune {

struct SearchSpace {
  int64_t devices = 1;
  int64_t train_batch_size = 1;   // sequences of a step
  int64_t most_microbatch = 64;   // sequences
  int64_t most_tensor = 0;        // 0: a node
  bool sequence_parallel = true;  // with tensor ranks, where they divide the tokens
  bool fixed_sums = false;        // reproducible "layout": tensor sizes for which model::check_fixed_sums holds
  bool offload = true;            // of optimizer states where they do not fit, on clusters whose host is described
  bool sets_device = true;        // config keys say "device": "cuda"
  std::vector<int> zero_stages{0, 1, 2, 3};
  StateTypes types;
};
// What the engine accepts with the rest of this config. Throws ConfigError where it has no train_batch_size, or says what no
// Layout describes (check_described).
SearchSpace search_space(const Config& config, int64_t devices);

// GPipe is not among them: 1F1B takes as long and holds less (pipeline/schedules/schedules.h).
void for_each_layout(const model::Model& model, const Cluster& cluster, const SearchSpace& space,
                     const std::function<void(const Layout&)>& use);

// The layout as it is, and where that does not fit, in the order of what they cost, those that hold less: ZeRO-3 without
// prefetching, offloaded optimizer states. Calls use(layout, bytes) up to the first that fits.
void for_each_variant(const StepModel& steps, const Cluster& cluster, const SearchSpace& space, const Layout& layout,
                      const std::function<void(const Layout&, const StepBytes&)>& use);

// Throws ConfigError where no layout divides so many devices, with the nearest numbers that some do.
void check_divides(const model::Model& model, const Cluster& cluster, const SearchSpace& space);

}  // namespace trivet::autotune
