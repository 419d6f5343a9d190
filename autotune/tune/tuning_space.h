// The configs that `trivet tune` may choose from. Each is the user's document with some keys replaced.
//
// Settings in the document are kept: a stage, a mesh or a schedule that it states is not searched. The exceptions are
// the microbatch and gradient accumulation, which the document must give one way or another, and whose ranges are in
// the section `autotuning`. train_batch_size is kept if given, because a layout does not change what is trained.
//
//   fast   mesh x ZeRO stage x microbatch
//   full   the same x schedule and chunks x recomputation x overlap_comm x sequence_parallel, where these have an effect
//
// A mesh has context ranks if the document gives parallel.context, for sequences of kLongSequence tokens or more, and if
// otherwise no config is accepted and fits.
//
// Configs that make_plan refuses are counted with the reason. The plan says exactly what fits, so nothing has to be run to
// learn that memory is short.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autotune/search_space.h"
#include "comm/world.h"
#include "engine/config/config.h"
#include "model/model.h"

namespace trivet::autotune {

// A config as it was given, so that keys can be replaced before defaults that depend on them are set.
struct ConfigDocument {
  std::string text, source;            // JSON; its file, for messages
  std::vector<std::string> overrides;  // key=value, as for --set

  Config config(const std::vector<std::string>& more = {}) const;
  // The document with all overrides applied and without the section `autotuning`, as JSON that `trivet train` reads.
  std::string json(const std::vector<std::string>& more = {}) const;
};

struct TrialConfig {
  int64_t id = 0;                      // its place in the space
  std::string name;                    // DeepSpeed's abbreviations: "z2_gas1_tmbspg8", then "_tp2", "_pp2_zb-h1", ...
  std::vector<std::string> overrides;  // in addition to the document's
  Config config;
  // Values from the plan, 0 before; memory_bytes is that of the rank that needs most.
  int64_t memory_bytes = 0, train_batch_size = 0;
  double model_flops = 0;  // per step, over all ranks
  bool fits = true;
};

struct RefusedConfigs {
  std::string reason;
  int64_t configs = 0;
  std::string example;  // the name of one
};

struct TuningSpace {
  std::vector<TrialConfig> trials;  // in the order of a grid search, including those that do not fit
  std::vector<RefusedConfigs> refused;
  std::string context;            // whether the meshes have context ranks and why; empty: the document decides it
  std::vector<std::string> kept;  // keys that would be searched if they were not given: "zero_optimization.stage 2"

  void count_refused(const std::string& reason, const std::string& name);
};

// Throws ConfigError for a section `autotuning` that contradicts itself or other sections, or requests what a tuner cannot do.
void check_autotuning(const Config& config);

// All configs that the ranges allow, not planned yet. They depend only on these arguments.
TuningSpace enumerate(const ConfigDocument& document, int world_size, ContextSearch context = ContextSearch::WhereItHelps);

// Adds the plans; all ranks call it together and share the work. `memory_bytes` is what one rank may have. For each layout,
// num_tuning_micro_batch_sizes of the microbatch sizes that fit remain. Throws ConfigError if there is nothing to try, and
// OutOfMemoryError if nothing fits.
TuningSpace plan_space(TuningSpace space, const Config& config, const model::Model& model, int64_t memory_bytes,
                       comm::World& world);

// Enumerates and plans; once more with context ranks if without them no config is accepted and fits.
TuningSpace planned_space(const ConfigDocument& document, const Config& config, const model::Model& model, int64_t memory_bytes,
                          comm::World& world);

}  // namespace trivet::autotune
