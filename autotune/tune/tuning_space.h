// What `trivet tune` may choose from: configs, each the user's document with some keys replaced.
//
// What the document gives is kept: a stage, a mesh, a schedule that is written there is not searched. The exceptions are the
// microbatch and the accumulation, which the document must give one way or another, and which have ranges of their own in the
// section `autotuning`. train_batch_size is kept where it is given: a layout does not change what is trained.
//
//   fast   mesh x ZeRO stage x microbatch
//   full   the same x schedule and chunks x recomputation x overlap_comm x sequence_parallel, where they mean something
//
// What make_plan refuses is counted with its reason. What fits is known from the plan, which is exact: nothing has to be run
// to learn that memory is short.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/config/config.h"
#include "model/model.h"

namespace trivet::autotune {

// A config as it was given, so that keys can be replaced before defaults that depend on them are set.
struct ConfigDocument {
  std::string text, source;            // JSON; its file, for messages
  std::vector<std::string> overrides;  // key=value, as of --set

  Config config(const std::vector<std::string>& more = {}) const;
  // The document with all of them replaced, as JSON that `trivet train` reads; without the section `autotuning`.
  std::string json(const std::vector<std::string>& more = {}) const;
};

struct TrialConfig {
  int64_t id = 0;                      // its place in the space
  std::string name;                    // DeepSpeed's abbreviations: "z2_gas1_tmbspg8", with "_tp2", "_pp2_zb-h1", ... behind
  std::vector<std::string> overrides;  // over the document's
  Config config;
  // Of the plan; bytes of the rank that needs most. 0 before it is planned.
  int64_t memory_bytes = 0, train_batch_size = 0;
  double model_flops = 0;  // of a step, all ranks
  bool fits = true;
};

struct RefusedConfigs {
  std::string reason;
  int64_t configs = 0;
  std::string example;  // the name of one
};

struct TuningSpace {
  std::vector<TrialConfig> trials;  // in the order of a grid search; those that do not fit among them
  std::vector<RefusedConfigs> refused;
  std::vector<std::string> kept;  // keys that would be searched, were they not given: "zero_optimization.stage 2"

  void count_refused(const std::string& reason, const std::string& name);
};

// Throws ConfigError for a section `autotuning` that contradicts itself or the rest, or asks for what a tuner cannot do.
void check_autotuning(const Config& config);

// All that the ranges allow, not planned yet. A function of the document and the number of ranks alone.
TuningSpace enumerate(const ConfigDocument& document, int world_size);

// The same with plans, made by all ranks together, each some of them. `memory_bytes` is what one rank may have. With each
// layout num_tuning_micro_batch_sizes of the microbatches that fit are left. Throws ConfigError where nothing is left to run.
TuningSpace plan_space(TuningSpace space, const Config& config, const model::Model& model, int64_t memory_bytes,
                       comm::World& world);

}  // namespace trivet::autotune
