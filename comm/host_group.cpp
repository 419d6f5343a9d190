#include "comm/host_group.h"

#include "comm/arguments.h"
#include "comm/traffic.h"

namespace trivet::comm {

void HostGroup::count(int64_t bytes) {
  operations_ += 1;
  bytes_sent_ += bytes;
}

void HostGroup::collective(const Call& call, Stream& stream) {
  const bool by_counts = call.header.operation == Operation::AllToAllV;
  count(by_counts ? bytes_sent(call.counts, call.header.dtype, rank()) : bytes_sent(call.header, rank(), size()));
  stream.enqueue([this, call] { run(call); });
}

void HostGroup::all_reduce(TensorView data, ReduceOp op, Stream& stream) {
  collective({all_reduce_header(*this, data, op), data, data}, stream);
}

void HostGroup::reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) {
  collective({reduce_scatter_header(*this, whole, shard, op), whole, shard}, stream);
}

void HostGroup::all_gather(ConstTensorView shard, TensorView whole, Stream& stream) {
  collective({all_gather_header(*this, shard, whole), shard, whole}, stream);
}

void HostGroup::broadcast(TensorView data, int root, Stream& stream) {
  collective({broadcast_header(*this, data, root), data, data}, stream);
}

void HostGroup::all_to_all(ConstTensorView in, TensorView out, Stream& stream) {
  collective({all_to_all_header(*this, in, out), in, out}, stream);
}

void HostGroup::all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) {
  collective({all_to_all_v_header(*this, in, out, counts), in, out, counts}, stream);
}

void HostGroup::barrier(Stream& stream) { collective({{.operation = Operation::Barrier}, {}, {}}, stream); }

void HostGroup::send(ConstTensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Send, data, peer);
  count(bytes_sent(header, rank(), size()));
  stream.enqueue([this, header, data] { run_send(header, data); });
}

void HostGroup::receive(TensorView data, int peer, Stream& stream) {
  const OperationHeader header = message_header(*this, Operation::Receive, data, peer);
  count(bytes_sent(header, rank(), size()));
  stream.enqueue([this, header, data] { run_receive(header, data); });
}

}  // namespace trivet::comm
