// Checks what one rank can see of an operation's arguments, the same for every kind of group, and makes its header.
// A wrong argument is a defect of the caller: std::logic_error naming group, operation and the sizes.
#pragma once

#include "comm/operation_header.h"

namespace trivet::comm {

OperationHeader all_reduce_header(const ProcessGroup& group, ConstTensorView data, ReduceOp op);
OperationHeader reduce_scatter_header(const ProcessGroup& group, ConstTensorView whole, ConstTensorView shard, ReduceOp op);
OperationHeader all_gather_header(const ProcessGroup& group, ConstTensorView shard, ConstTensorView whole);
OperationHeader broadcast_header(const ProcessGroup& group, ConstTensorView data, int root);
OperationHeader all_to_all_header(const ProcessGroup& group, ConstTensorView in, ConstTensorView out);
// `operation` is Send or Receive.
OperationHeader message_header(const ProcessGroup& group, Operation operation, ConstTensorView data, int peer);
// Ascending ranks of the group, at least one.
void check_members(const ProcessGroup& group, const std::vector<int>& ranks, const std::string& name);

}  // namespace trivet::comm
