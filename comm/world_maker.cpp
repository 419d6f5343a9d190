#include "comm/world_maker.h"

#include <fmt/format.h>

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
  for (const Member& member : members)
    if (!same_host(member, members[0])) throw CommError(ExitCode::Rendezvous, "comm: " + several_hosts(member, members[0]));
  return make_world_on_one_host;
}

}  // namespace trivet::comm
