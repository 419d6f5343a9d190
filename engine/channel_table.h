// The channels over which a rank communicates: one table, from which everything about them follows. Channels (channels.h) makes
// the process groups and streams; the planner counts traffic and memory; timelines have a row for each queue, and attribute
// waits to axes by it (pipeline::axis_of).
//
//   channel          ranks                          queue    overlaps            sums floats            traffic
//   control          all                            meet     no                  no                     -
//   data             that divide dense parameters   meet     no                  no                     -
//   data.gather      that divide dense parameters   gather   overlap_comm        no                     gather
//   data.reduce      that divide dense parameters   reduce   overlap_comm        run mode               reduce
//   data.replicas    with the same shard            reduce   overlap_comm        run mode               replicas
//   data.secondary   with a second copy of weights  gather   overlap_comm        no                     secondary
//   data.near        the same ranks                 reduce   overlap_comm        no                     near
//   data.far         at their place in other runs   reduce   overlap_comm        no                     far
//   part             all with the same blocks       meet     no                  no                     -
//   tensor           tensor axis                    tensor   more than 1 rank    yes                    tensor
//   tensor.reduce    tensor axis                    reduce   overlap_comm        run mode, own tokens   tensor
//   context          context axis                   context  unless "ulysses"    layout mode            context
//   context.heads    neighbours on that axis        context  yes                 no                     context
//   context.ring     at their place in other runs   context  yes                 no                     context
//   experts          that divide experts            meet     no                  no                     -
//   experts.gather   that divide experts            gather   overlap_comm        no                     gather
//   experts.reduce   that divide experts            reduce   overlap_comm        run mode               reduce
//   expert           expert axis                    expert   no                  no                     expert
//   expert.sums      context ranks, same experts    expert   no                  yes                    expert
//   pipeline.*       two neighbours of a pipeline    send     yes                 no                     pipeline
//   tied             two stages of a tied weight    meet     no                  no                     -
//
// The last four of data are there only if the config asks for them (engine/sharing.h), and so are those of context ranks, of
// which the last two belong to "ulysses_ring", and those of experts, of which the last is for layout mode with more context
// ranks than share experts.
//
// Channels with the same ranks are separate process groups, because the operations of one group have one order on all its
// ranks, and work on different queues has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/axis.h"
#include "engine/mesh.h"
#include "engine/program.h"
#include "engine/sharing.h"
#include "pipeline/queue.h"

namespace trivet {

struct Config;

enum class Purpose : uint8_t {
  Control,       // loss, norm, and numbers that are reported once a step
  Data,          // data that the optimizer needs of the other ranks that share a parameter's shards
  Gather,        // whole weights from shards
  Reduce,        // gradients
  Replicas,      // gradients of a shard that several ranks hold
  Secondary,     // whole weights from the shards of their second copy
  ReduceNear,    // quantized gradients within a run of ranks
  ReduceFar,     // and between runs
  Part,          // sums over the ranks that have the same blocks
  Layers,        // data that layers exchange over an axis
  LayersReduce,  // gradients that are sums over an axis of layers
  Neighbours,    // tokens for heads, within a run of context ranks
  AcrossRuns,    // keys and values, between context ranks at the same place of each run
  TokenSums,     // gradients of experts, between context ranks that have the same
  Forward,       // activations to the next stage
  Backward,      // gradients to the previous stage
  Tied           // gradients and values of a weight that two stages share
};

// The ranks, among those along the axes of a channel, that form one group.
enum class Members : uint8_t {
  All,
  Run,        // a run of ranks (runs_of)
  AcrossRuns  // ranks at the same place of each run (across_runs_of)
};

struct ChannelSpec {
  Purpose purpose = Purpose::Control;
  std::string name;  // name of its groups, in messages
  // A group has the ranks that differ along these axes of the mesh (Mesh::view of the sharing) only, or some of them. Between
  // stages it has two ranks instead: those at one of these pairs of pipeline coordinates, and equal on all other axes.
  AxisSet axes;
  int within = 0;  // ranks of the runs into which these are cut first; 0: they are not
  Members members = Members::All;
  int run = 0;  // ranks of a run, for the other two
  Sharing sharing = Sharing::Dense;
  bool between_stages = false;
  std::vector<std::pair<int, int>> stage_pairs;
  pipeline::Queue queue = pipeline::Queue::Meet;
  bool overlaps = false;       // operations run in parallel with the program
  bool sums_floats = false;    // in rank order, for which a device needs staging memory
  bool splits_tokens = false;  // for layers: each rank has only its own tokens between blocks (comm/rank_axis.h)
  std::string traffic;         // the line of a plan that counts what the channel sends; empty: none does
  std::optional<Axis> axis;    // layers find it under this name
};

// `tied_ranks`: pairs of pipeline ranks that share a tied weight, ascending.
std::vector<ChannelSpec> channel_table(const Config& config, const Mesh& mesh, const StageMap& stages,
                                       const std::vector<std::pair<int, int>>& tied_ranks);

}  // namespace trivet
