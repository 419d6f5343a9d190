// Enumerates what the search tries: every layout that divides a number of devices, a model and a batch. Nothing is sampled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autotune/step_model.h"

namespace trivet::autotune {

// When layouts with more than one context rank are tried. There are several times as many layouts with them, so by default only
// for sequences of kLongSequence tokens or more, and if without them no layout fits or divides the devices.
enum class ContextSearch : uint8_t { Never, WhereItHelps, Always };
inline constexpr int64_t kLongSequence = 16384;

struct SearchSpace {
  int64_t devices = 1;
  int64_t train_batch_size = 1;   // samples per step
  int64_t most_microbatch = 64;   // samples
  int64_t most_tensor = 0;        // 0: the size of a node
  bool sequence_parallel = true;  // with tensor ranks, if they divide the tokens
  ContextSearch context = ContextSearch::WhereItHelps;
  // What the config has against ranks that share experts; empty: all sizes that divide the experts and the ranks are tried.
  std::string expert_problem;
  // The same on GPUs. Such layouts are tried all the same, but their keys leave the device to the config.
  std::string expert_problem_on_gpus;
  bool fixed_sums = false;               // reproducible "layout": only tensor sizes for which model::check_fixed_sums holds
  bool offload = true;                   // offloads optimizer states that do not fit, on clusters whose host is described
  bool sets_device = true;               // config keys set "device": "cuda"
  std::vector<std::string> other_names;  // kOtherNames that the config gives (autotune/layout.h)
  std::vector<int> zero_stages{0, 1, 2, 3};
  StateTypes types;
};
// The space that the engine accepts with the rest of this config. Throws ConfigError if the config has no train_batch_size, or
// gives what no Layout describes (check_described).
SearchSpace search_space(const Config& config, int64_t devices);

// The schedules that are searched: first those with a fixed number of chunks, then the others, each in the order of the names.
// GPipe is left out, because 1F1B takes as long and holds less (pipeline/schedules/schedules.h).
std::vector<ScheduleKind> searched_schedules();

// Checks whether gradients of weights come later than those of inputs, which ranks that share experts cannot do.
bool delays_weight_gradients(ScheduleKind kind);

// Has layouts with context ranks only if the space has ContextSearch::Always.
void for_each_layout(const model::Model& model, const Cluster& cluster, const SearchSpace& space,
                     const std::function<void(const Layout&)>& use);

// Calls use(layout, bytes) for the layout itself and then, in the order of their cost, for variants that hold less (ZeRO-3
// without prefetching, offloaded optimizer states), up to the first that fits.
void for_each_variant(const StepModel& steps, const Cluster& cluster, const SearchSpace& space, const Layout& layout,
                      const std::function<void(const Layout&, const StepBytes&)>& use);

// Checks whether some number of context ranks above 1 can share the sequences of the model.
bool can_share_sequences(const model::Model& model);
// The sizes of parallel.expert that divide the experts of the model and so many data and context ranks; at least 1.
std::vector<int64_t> expert_sizes(const model::Model& model, const SearchSpace& space, int64_t ranks);
bool is_long(const model::Model& model);  // its sequences have kLongSequence tokens or more
// Checks whether some layout divides the devices.
bool has_layouts(const model::Model& model, const Cluster& cluster, const SearchSpace& space);
// Throws ConfigError if no layout divides this number of devices; the message gives the nearest numbers that can be used.
void check_divides(const model::Model& model, const Cluster& cluster, const SearchSpace& space);

}  // namespace trivet::autotune
