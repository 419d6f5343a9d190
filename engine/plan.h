// All that is knowable before step 0, computed without touching a device: mesh, shard layout, programs, memory, traffic.
//
// make_plan is pure. Memory and traffic are not estimated: a Worker runs one step and one evaluation on meta kernels, meta
// groups and arenas without memory, so the numbers are those of the code that will run (core/arena.h).
#pragma once

#include <string>

#include "comm/process_group.h"
#include "core/memory.h"
#include "engine/config/config.h"
#include "engine/mesh.h"
#include "engine/program.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "zero/shard_layout.h"

namespace trivet {

struct Plan {
  Config config;
  Mesh mesh;
  ResolvedBatch batch;
  zero::ShardLayout layout;
  Programs programs;

  int64_t parameters = 0;  // of the model
  int64_t activation_arena_bytes = 0, buffer_arena_bytes = 0;
  MemoryBytes memory;               // of the heaviest rank, at its peak; buffers include what saving beside training stages
  comm::Traffic gather, reduce;     // of one rank in one step
  kernels::Counters step_counters;  // of one rank in one step
  double model_flops_per_step = 0;  // of all ranks, by the convention of model::flops_per_token
};

// Throws ConfigError for what cannot be: mesh, batch equation, what this version does not implement.
Plan make_plan(const Config& config, const model::Model& model, int world_size);

// What the model section describes; vocabulary_size as given by the data.
model::Description describe_model(const ModelConfig& config, int64_t vocabulary_size);

// For people: mesh, batch, memory by category, traffic, program.
std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace trivet
