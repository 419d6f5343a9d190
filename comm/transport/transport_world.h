// The world of ranks that communicate over a transport.
#pragma once

#include "comm/group_errors.h"
#include "comm/transport/transport.h"
#include "comm/world.h"

namespace trivet::comm {

// Sums go by segments of at most this many bytes from each rank (transport_collectives.h); a multiple of 64.
inline constexpr int64_t kSegmentBytes = int64_t{1} << 20;

// `self` is this rank in the group of all ranks ("world"), and has the transport's rank and size. The world looks at `job` in
// every wait.
std::unique_ptr<World> make_transport_world(std::unique_ptr<Transport> transport, RankInGroup self, JobView job,
                                            int64_t segment_bytes = kSegmentBytes);

}  // namespace trivet::comm
