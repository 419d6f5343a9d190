// The world of ranks on several hosts.
#pragma once

#include "comm/hosts/hosts_group.h"
#include "comm/world.h"

namespace trivet::comm {

// `self` is this rank in the group of all ranks ("world"); `board` is that of the ranks on this host (HostsGroup::board_bytes).
std::unique_ptr<World> make_hosts_world(RankSurroundings surroundings, const RankInGroup& self, const JobView& job,
                                        std::shared_ptr<std::byte> board);

}  // namespace trivet::comm
