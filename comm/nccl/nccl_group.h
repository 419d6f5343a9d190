// A group over NCCL: tensors are in device memory, operations go to the stream that runs them (NcclResources::current_stream)
// and the host waits for none. Sums have the bits of the other groups (comm/process_group.h): integers by NCCL, floats by
// comm/nccl/staged_sums.h.
//
// What differs from groups on the host:
//   * Headers are not compared, unless NcclOptions::compare_calls says so: ranks that disagree get an error of NCCL or, at the
//     deadline, NoProgress.
//   * NCCL runs the operations of a communicator one after the other. In a group of two (the links of a pipeline) each
//   direction
//     of messages has its own, so that a send never waits for a receive of the same rank. In a larger group messages of a rank
//     wait for those it was given before, in the order of calls, whatever stream they are on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/nccl_resources.h"
#include "comm/process_group.h"

namespace trivet::comm {

// Collective over `host`, a group of the same ranks on the host, whose name it takes. The resources must outlive the group,
// which must outlive the work that is queued. Its destructor aborts what is under way; close_nccl_group ends politely.
std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, NcclResources& resources);

// Collective: waits until all ranks' operations of this group (made by make_nccl_group, or a subgroup of one) have ended.
void close_nccl_group(ProcessGroup& group);

}  // namespace trivet::comm
