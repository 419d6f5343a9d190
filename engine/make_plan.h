// Makes a plan of a config and a model.
//
// It is pure, except that it looks for a GPU if the device is "auto". Memory and traffic are not estimated: for every stage of
// the pipeline, a Worker runs one step and one evaluation on meta kernels, meta groups and arenas without memory, so the
// numbers are those of the code that will run (core/arena.h).
#pragma once

#include "engine/plan.h"
#include "model/model.h"
#include "pipeline/partition.h"

namespace trivet {

// The most values in the inputs or the targets of a microbatch, the most elements in a layer's output or inside of the layer
// for it, and the most microbatches in a step.
inline constexpr int64_t kMaxValues = int64_t{1} << 31, kMaxOutputs = int64_t{1} << 46, kMaxMicrobatches = int64_t{1} << 16;

// Returns the costs by which the stages of a pipeline are divided: the cost of each block is its measured time or,
// without a cost file, the FLOPs of its kernels for `samples` samples, most of which are products.
std::vector<pipeline::BlockFacts> block_facts(const PipelineConfig& config, const model::Model& model, int64_t samples);

// Throws ConfigError for an impossible mesh or batch, and for what this version does not implement.
Plan make_plan(const Config& config, const model::Model& model, int world_size);

}  // namespace trivet
