#include "engine/channel_table.h"

#include <algorithm>
#include <set>

#include "engine/config/context_kind.h"

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

// The channels of `name` for the ranks that hold the same elements of parameters with this sharing.
void add_data_channels(std::vector<ChannelSpec>& table, const Config& config, const Sharding& sharding, bool sums_gradients,
                       Sharing sharing = Sharing::Dense, const std::string& prefix = "data") {
  const ChannelSpec data{.purpose = Purpose::Data,
                         .name = prefix,
                         .axes = equal_over(sharing),
                         .within = sharding.replicas > 1 ? sharding.shards : 0,
                         .sharing = sharing};
  const auto add = [&](Purpose purpose, const char* name, Queue queue, const char* traffic) -> ChannelSpec& {
    ChannelSpec& channel = table.emplace_back(data);
    channel.purpose = purpose;
    channel.name = prefix + name;
    channel.queue = queue;
    channel.overlaps = config.zero.overlap_comm;
    channel.sums_floats = queue == Queue::Reduce && sums_gradients;
    channel.traffic = traffic;
    return channel;
  };
  table.push_back(data);
  add(Purpose::Gather, ".gather", Queue::Gather, "gather");
  add(Purpose::Reduce, ".reduce", Queue::Reduce, "reduce");
  if (sharding.replicas > 1) {
    ChannelSpec& replicas = add(Purpose::Replicas, ".replicas", Queue::Reduce, "replicas");
    replicas.within = 0;
    replicas.members = Members::AcrossRuns;
    replicas.run = sharding.shards;
  }
  const auto add_runs = [&](Purpose purpose, const char* name, Queue queue, const char* traffic, Members members) {
    ChannelSpec& channel = add(purpose, name, queue, traffic);
    channel.members = members;
    channel.run = sharding.secondary;
    channel.sums_floats = false;
  };
  if (sharding.secondary == 1) return;
  add_runs(Purpose::Secondary, ".secondary", Queue::Gather, "secondary", Members::Run);
  if (!config.zero.zero_quantized_gradients) return;
  add_runs(Purpose::ReduceNear, ".near", Queue::Reduce, "near", Members::Run);
  add_runs(Purpose::ReduceFar, ".far", Queue::Reduce, "far", Members::AcrossRuns);
}

void add_context_channels(std::vector<ChannelSpec>& table, const Config& config) {
  const ChannelSpec whole{.purpose = Purpose::Layers,
                          .name = "context",
                          .axes = Axis::Context,
                          .queue = queue_of(Axis::Context),
                          .overlaps = config::context_kind(config) != ContextKind::Ulysses,
                          .sums_floats = config.fixes_token_sums(),
                          .traffic = "context",
                          .axis = Axis::Context};
  table.push_back(whole);
  const auto run = static_cast<int>(config::context_neighbours(config));
  if (run == 1) return;
  const auto add = [&](Purpose purpose, const char* name, Members members) {
    ChannelSpec& channel = table.emplace_back(whole);
    channel.purpose = purpose;
    channel.name = name;
    channel.members = members;
    channel.run = run;
  };
  add(Purpose::Neighbours, "context.heads", Members::Run);
  add(Purpose::AcrossRuns, "context.ring", Members::AcrossRuns);
}

// Ranks that share experts exchange tokens; those with the same experts divide them.
void add_expert_channels(std::vector<ChannelSpec>& table, const Config& config, const Mesh& mesh, bool sums_gradients) {
  const Mesh experts = mesh.view(Sharing::Expert);
  add_data_channels(table, config, {.shards = experts.size(equal_over(Sharing::Expert))}, sums_gradients, Sharing::Expert,
                    "experts");
  table.push_back({.purpose = Purpose::Layers,
                   .name = "expert",
                   .axes = Axis::Expert,
                   .sharing = Sharing::Expert,
                   .queue = queue_of(Axis::Expert),
                   .traffic = "expert",
                   .axis = Axis::Expert});
  if (!config.fixes_token_sums() || config.parallel.expert >= config.parallel.context) return;
  table.push_back({.purpose = Purpose::TokenSums,
                   .name = "expert.sums",
                   .axes = Axis::Context,
                   .members = Members::AcrossRuns,
                   .run = static_cast<int>(config.parallel.expert),
                   .queue = queue_of(Axis::Expert),
                   .sums_floats = true,
                   .traffic = "expert"});
}

}  // namespace

std::vector<ChannelSpec> channel_table(const Config& config, const Mesh& mesh, const StageMap& stages,
                                       const std::vector<std::pair<int, int>>& tied_ranks) {
  const bool overlap = config.zero.overlap_comm;
  const bool sums_gradients = config.reproducible == Reproducible::Run;  // layout mode sums integers
  std::vector<ChannelSpec> table{{.purpose = Purpose::Control, .name = "control", .axes = AxisSet::all()}};
  add_data_channels(table, config, sharding_of(config, mesh), sums_gradients);
  table.push_back({.purpose = Purpose::Part, .name = "part", .axes = AxisSet::all().without(Axis::Pipeline)});
  table.push_back({.purpose = Purpose::Layers,
                   .name = "tensor",
                   .axes = Axis::Tensor,
                   .queue = queue_of(Axis::Tensor),
                   .overlaps = mesh.size(Axis::Tensor) > 1,
                   .sums_floats = true,
                   .splits_tokens = config.parallel.sequence_parallel,
                   .traffic = "tensor",
                   .axis = Axis::Tensor});
  table.push_back({.purpose = Purpose::LayersReduce,
                   .name = "tensor.reduce",
                   .axes = Axis::Tensor,
                   .queue = Queue::Reduce,
                   .overlaps = overlap,
                   .sums_floats = sums_gradients && config.parallel.sequence_parallel,
                   .traffic = "tensor",
                   .axis = Axis::Tensor});
  if (mesh.size(Axis::Context) > 1) add_context_channels(table, config);
  if (config.parallel.expert > 1) add_expert_channels(table, config, mesh, sums_gradients);
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
