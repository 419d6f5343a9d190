// Chooses the transport that the ranks of a job use, from the table of its members, when all of them have joined.
//
//   rendezvous -> members -> choose_world_maker -> WorldMaker -> the World; connect() lets Liveness watch its ranks
//
// To add a transport: a maker of its worlds, and the condition under which choose_world_maker returns it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/job_state.h"
#include "comm/member.h"
#include "comm/store.h"
#include "comm/world.h"

namespace trivet::comm {

// The facts that a rank needs to make its world. The references are valid as long as the world.
struct WorldRequest {
  int rank = 0;
  const std::vector<Member>& members;  // all ranks, by rank
  std::string job_id;
  std::string master_address;
  const WorldOptions& options;
  // Every wait of the world looks here, and whoever notices that a peer is lost accuses it here.
  std::shared_ptr<JobState> job;
  // For what ranks must know of each other before they can communicate, such as addresses. A key begins with the transport's
  // name.
  Store& store;
  // Returns when all ranks have called it as often as this one. Throws CommError when a rank is missing or lost.
  std::function<void()> meet;
};

// Collective over all ranks of the job. The end of connections and of processes is Liveness' concern, not the world's.
using WorldMaker = std::function<std::unique_ptr<World>(const WorldRequest&)>;

// Shared memory for ranks of one host, otherwise a transport between hosts.
WorldMaker choose_world_maker(const std::vector<Member>& members);

// connect() of world.h uses choose_world_maker; this one takes the choice from the caller.
using ChooseWorldMaker = std::function<WorldMaker(const std::vector<Member>& members)>;
std::unique_ptr<World> connect(const Place& place, const WorldOptions& options, const ChooseWorldMaker& choose);

}  // namespace trivet::comm
