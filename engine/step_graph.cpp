#include "engine/step_graph.h"

#include <fmt/format.h>

#include "engine/config/config.h"
#include "engine/config/refuse.h"

namespace trivet {
namespace {

// Describes what prevents a graph; empty if nothing does.
std::string obstacle(const Config& config, const Mesh& mesh) {
  if (mesh.size() > 1) return fmt::format("{} ranks, whose communication this version does not capture", mesh.size());
  if (config.model.token_drop.enabled) return "random_ltd, which changes the number of tokens from step to step";
  if (config.updates_on_host())
    return fmt::format("zero_optimization.offload_optimizer.device \"{}\", whose updates the host makes",
                       name_of(config.zero.offload_optimizer.device));
  if (config.zero.offload_param.device != OffloadDevice::None)
    return fmt::format("zero_optimization.offload_param.device \"{}\", whose weights the host loads",
                       name_of(config.zero.offload_param.device));
  if (config.offloads_inputs())
    return "activation_checkpointing.cpu_checkpointing, whose copies to the host this version does not capture";
  return "";
}

}  // namespace

StepGraph step_graph(const Config& config, const Mesh& mesh) {
  if (config.compute_device() != Device::Cuda) return {false, "the device is not a GPU"};
  if (config.cuda_graph == CudaGraph::Off) return {false, "cuda_graph \"off\""};
  const std::string why_not = obstacle(config, mesh);
  if (!why_not.empty() && config.cuda_graph == CudaGraph::On)
    config::refuse(config, "cuda_graph", "\"on\" is not accepted with " + why_not + "; use \"auto\" or \"off\"");
  return {why_not.empty(), why_not};
}

std::string to_text(const StepGraph& graph) {
  return graph.used ? "a step is launched as one CUDA graph" : "kernels are launched one by one: " + graph.why_not;
}

}  // namespace trivet
