// Whether a step's kernels are launched as one CUDA graph (docs/cuda.md, "Graphs"): they are where nothing but memory tells one
// step from the next.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/mesh.h"

namespace trivet {

struct StepGraph {
  bool used = false;
  std::string why_not;  // where it is not
};

// Throws ConfigError where cuda_graph "on" is asked for and cannot be. The config's device is known: not Auto.
StepGraph step_graph(const Config& config, const Mesh& mesh);

std::string to_text(const StepGraph& graph);

}  // namespace trivet
