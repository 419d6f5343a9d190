#include "engine/channel_table.h"

#include <algorithm>
#include <set>

namespace trivet {
namespace {

using pipeline::Queue;
using pipeline::queue_of;

// Pairs of pipeline ranks that have neighbouring stages.
std::vector<std::pair<int, int>> neighbours(const StageMap& stages) {
  std::set<std::pair<int, int>> pairs;
  for (int stage = 0; stage + 1 < stages.stages(); ++stage) {
    const int a = stages.rank_of_stage[stage], b = stages.rank_of_stage[stage + 1];
    if (a != b) pairs.insert(std::minmax(a, b));
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace

std::vector<ChannelSpec> channel_table(const Config& config, const Mesh& mesh, const StageMap& stages,
                                       const std::vector<std::pair<int, int>>& tied_ranks) {
  const bool overlap = config.zero.overlap_comm;
  const bool sums_gradients = config.reproducible == Reproducible::Run;  // layout mode sums integers
  std::vector<ChannelSpec> table{{.purpose = Purpose::Control, .name = "control", .axes = AxisSet::all()},
                                 {.purpose = Purpose::Data, .name = "data", .axes = equal_over(Sharing::Dense)},
                                 {.purpose = Purpose::Gather,
                                  .name = "data.gather",
                                  .axes = equal_over(Sharing::Dense),
                                  .queue = Queue::Gather,
                                  .overlaps = overlap,
                                  .traffic = "gather"},
                                 {.purpose = Purpose::Reduce,
                                  .name = "data.reduce",
                                  .axes = equal_over(Sharing::Dense),
                                  .queue = Queue::Reduce,
                                  .overlaps = overlap,
                                  .sums_floats = sums_gradients,
                                  .traffic = "reduce"},
                                 {.purpose = Purpose::Part, .name = "part", .axes = AxisSet::all().without(Axis::Pipeline)},
                                 {.purpose = Purpose::Layers,
                                  .name = "tensor",
                                  .axes = Axis::Tensor,
                                  .queue = queue_of(Axis::Tensor),
                                  .overlaps = mesh.size(Axis::Tensor) > 1,
                                  .sums_floats = true,
                                  .splits_tokens = config.parallel.sequence_parallel,
                                  .traffic = "tensor",
                                  .axis = Axis::Tensor},
                                 {.purpose = Purpose::LayersReduce,
                                  .name = "tensor.reduce",
                                  .axes = Axis::Tensor,
                                  .queue = Queue::Reduce,
                                  .overlaps = overlap,
                                  .sums_floats = sums_gradients && config.parallel.sequence_parallel,
                                  .traffic = "tensor",
                                  .axis = Axis::Tensor}};
  const ChannelSpec link{
      .between_stages = true, .stage_pairs = neighbours(stages), .queue = Queue::Send, .overlaps = true, .traffic = "pipeline"};
  for (const auto& [purpose, name] :
       {std::pair{Purpose::Forward, "pipeline.forward"}, {Purpose::Backward, "pipeline.backward"}}) {
    ChannelSpec& channel = table.emplace_back(link);
    channel.purpose = purpose;
    channel.name = name;
  }
  table.push_back({.purpose = Purpose::Tied, .name = "tied", .between_stages = true, .stage_pairs = tied_ranks});
  return table;
}

}  // namespace trivet
