// Everything that is known before step 0, computed without touching a device: mesh, shard layout, programs, memory, traffic.
//
// A plan is data; make_plan.h makes it.
#pragma once

#include <optional>
#include <string>

#include "core/batch_layout.h"
#include "engine/channel_table.h"
#include "engine/config/config.h"
#include "engine/mesh.h"
#include "engine/rank_plan.h"
#include "engine/step_graph.h"

namespace trivet {

// Ranks that differ along these axes only, and have the same experts, have the same blocks, parts of parameters and programs.
constexpr AxisSet equal_plans() { return {Axis::Data, Axis::Context}; }
// The coordinates of a rank's plan: 0 on these axes, and on the expert axis those in the view of experts (Mesh::view).
Coordinates plan_coordinates(const Mesh& mesh, const Mesh& of_experts, int world_rank);

struct Plan {
  Config config;
  Mesh mesh;
  ResolvedBatch batch;
  StageMap stages;
  pipeline::Schedule schedule;      // the compute order of all pipeline ranks, with sends and receives
  std::vector<RankPlan> ranks;      // one for all ranks that differ along the axes of equal_plans() only; by coordinates
  int64_t parameters = 0;           // in the model
  int64_t active_parameters = 0;    // those that compute a token; fewer with experts
  double model_flops_per_step = 0;  // all ranks, model::flops_per_sample

  std::optional<std::string> found_device;  // the device that "auto" became, and why; set in config.device, too
  StepGraph step_graph;

  const RankPlan& rank(int world_rank) const;
  const RankPlan& rank(const Coordinates& coordinates) const;
  BatchLayout batch_layout(int world_rank) const;
  Sharding sharding() const { return sharding_of(config, mesh); }
  int shards(Sharing sharing) const;  // ranks over which ZeRO divides parameters that are shared like this
  const RankPlan& heaviest() const;   // most memory
  std::vector<ChannelSpec> channels() const;
};

// to_text() shows people the mesh, batch, memory by category, traffic and programs.
std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace trivet
