// Decides whether a step's kernels are launched as one CUDA graph (docs/cuda.md, "Graphs"). This requires that steps differ
// only in the contents of memory.
#pragma once

#include <string>

#include "engine/mesh.h"

namespace trivet {

struct Config;

struct StepGraph {
  bool used = false;
  std::string why_not;  // if it is not used
};

// Throws ConfigError when cuda_graph is "on" but impossible. The config's device must be known, not Auto.
StepGraph step_graph(const Config& config, const Mesh& mesh);

std::string to_text(const StepGraph& graph);

}  // namespace trivet
