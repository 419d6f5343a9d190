// A process group over NCCL. Tensors are in device memory, operations are enqueued on NcclResources::current_stream, and the
// host waits for none of them. Sums have the same bits as in other groups (comm/process_group.h): NCCL sums integers,
// comm/nccl/staged_sums.h sums floats.
//
// Differences from groups on the host:
//   * Headers, and the counts of all_to_all_v, are not compared unless NcclOptions::compare_calls is set: ranks that disagree
//     get an error from NCCL or, at the deadline, NoProgress.
//   * NCCL runs the operations of a communicator one at a time. In a group of two (the links of a pipeline), each direction of
//     messages has its own communicator, so that a send never waits for a receive of the same rank. In a larger group, the
//     messages of a rank run in the order of calls, whatever stream they are on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/nccl_resources.h"
#include "comm/process_group.h"

namespace trivet::comm {

// Collective over `host`, a group of the same ranks on the host, whose name it takes. The resources must outlive the group, and
// the group its queued work. Its destructor aborts operations in flight; close_nccl_group lets them finish.
std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, NcclResources& resources);

// Collective: waits until all ranks' operations of this group (from make_nccl_group, or a subgroup of one) have ended.
void close_nccl_group(ProcessGroup& group);

}  // namespace trivet::comm
