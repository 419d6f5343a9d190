#include "comm/world_maker.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/hosts/network_world.h"
#include "comm/shm/shm_world.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

std::unique_ptr<World> make_world_on_one_host(const WorldRequest& request) {
  return make_shm_world({.rank = request.rank,
                         .size = static_cast<int>(request.members.size()),
                         .segment_name = fmt::format("/trivet-{}-world", request.job_id),
                         .host = request.members[request.rank].where(),
                         .barrier = request.meet},
                        request.options, request.job);
}

}  // namespace

WorldMaker choose_world_maker(const std::vector<Member>& members) {
  const bool one_host =
      std::all_of(members.begin(), members.end(), [&](const Member& member) { return same_host(member, members.front()); });
  return one_host ? make_world_on_one_host : make_network_world;
}

}  // namespace trivet::comm
