// Checks those arguments of an operation that one rank can see, in the same way for every kind of group, and builds its header.
// A wrong argument is a defect in the caller: std::logic_error that names the group, the operation and the sizes.
#pragma once

#include "comm/operation_header.h"

namespace trivet::comm {

OperationHeader all_reduce_header(const ProcessGroup& group, ConstTensorView data, ReduceOp op);
OperationHeader reduce_scatter_header(const ProcessGroup& group, ConstTensorView whole, ConstTensorView shard, ReduceOp op);
OperationHeader all_gather_header(const ProcessGroup& group, ConstTensorView shard, ConstTensorView whole);
OperationHeader broadcast_header(const ProcessGroup& group, ConstTensorView data, int root);
OperationHeader all_to_all_header(const ProcessGroup& group, ConstTensorView in, ConstTensorView out);
OperationHeader all_to_all_v_header(const ProcessGroup& group, ConstTensorView in, ConstTensorView out,
                                    const ExchangeCounts& counts);
// `operation` is Send or Receive.
OperationHeader message_header(const ProcessGroup& group, Operation operation, ConstTensorView data, int peer);
// Checks that `ranks` are ascending ranks of the group, at least one.
void check_members(const ProcessGroup& group, const std::vector<int>& ranks, const std::string& name);
// Checks the members, too. Ranks that give different members or names get different headers.
OperationHeader subgroup_header(const ProcessGroup& group, const std::vector<int>& ranks, const std::string& name);

}  // namespace trivet::comm
