// Ranks that communicate. One interface over threads of one process, processes of one host, and later hosts and GPUs.
//
// Units are elements. All ranks of a group make the same calls in the same order; every call carries a header (sequence number,
// operation, dtype, count, root), and ranks whose headers differ are all told so (CommError, RanksDisagree) with both headers.
// A call is work on a stream: it is enqueued, and done when an event recorded behind it is done. Views must stay valid until
// then. Two calls on one group must be on one stream, or ordered by events. Errors name group, world rank, host and operation;
// a peer that died is CommError PeerLost within a second, one that never comes NoProgress at the deadline.
//
// Bytes that a rank sends, for n ranks and c elements of b bytes (docs/communication.md): all_gather and reduce_scatter
// (n-1)/n * whole, all_reduce twice that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "core/stream.h"
#include "core/tensor_view.h"

namespace trivet::comm {

// Sum of float32, bfloat16 or float16 adds in float32, in rank order, and rounds once: the same bits on every rank and in every
// run. Sum of float64 in rank order. Sum of int64 is exact. Max: of any of these (used for flags and digests). TreeSum: as Sum,
// but neighbours first, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), for groups of a power of two: what each rank has may be the
// same tree over more terms, and the bits then do not depend on how many ranks share them.
enum class ReduceOp : uint8_t { Sum, Max, TreeSum };

enum class Operation : uint8_t { AllReduce, ReduceScatter, AllGather, Broadcast, AllToAll, Send, Receive, Barrier };
}  // namespace trivet::comm

namespace trivet {
template <>
struct EnumNames<comm::ReduceOp> {
  static constexpr std::array<std::pair<std::string_view, comm::ReduceOp>, 3> table{
      {{"sum", comm::ReduceOp::Sum}, {"max", comm::ReduceOp::Max}, {"tree_sum", comm::ReduceOp::TreeSum}}};
};
template <>
struct EnumNames<comm::Operation> {
  static constexpr std::array<std::pair<std::string_view, comm::Operation>, 8> table{
      {{"all_reduce", comm::Operation::AllReduce},
       {"reduce_scatter", comm::Operation::ReduceScatter},
       {"all_gather", comm::Operation::AllGather},
       {"broadcast", comm::Operation::Broadcast},
       {"all_to_all", comm::Operation::AllToAll},
       {"send", comm::Operation::Send},
       {"receive", comm::Operation::Receive},
       {"barrier", comm::Operation::Barrier}}};
};
}  // namespace trivet

namespace trivet::comm {

// What a group has sent since the start, for comparison with the formulas.
struct Traffic {
  int64_t operations = 0;
  int64_t bytes_sent = 0;  // by this rank, as the formula counts them
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;

  // data[c] = sum over ranks, on all of them.
  virtual void all_reduce(TensorView data, ReduceOp, Stream&) = 0;
  // whole[size * c] on each rank; shard[c] = sum over ranks of their whole[rank * c ...]. shard may lie in whole at its own
  // place.
  virtual void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp, Stream&) = 0;
  // whole[size * c] = shards[c] of all ranks in rank order. shard may lie in whole at its own place.
  virtual void all_gather(ConstTensorView shard, TensorView whole, Stream&) = 0;
  virtual void broadcast(TensorView data, int root, Stream&) = 0;
  // out[r * c ...] = what rank r had in in[rank * c ...]
  virtual void all_to_all(ConstTensorView in, TensorView out, Stream&) = 0;
  // Rendezvous: returns (in stream order) when the peer has received. Grouped calls must not be relied on to buffer.
  virtual void send(ConstTensorView data, int peer, Stream&) = 0;
  virtual void receive(TensorView data, int peer, Stream&) = 0;
  virtual void barrier(Stream&) = 0;

  // A group of some ranks of this one (ascending group ranks; all ranks of this group call it with the same argument order,
  // those that are not members get null). Its operations are independent of this group's.
  virtual std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) = 0;

  virtual Traffic traffic() const = 0;
};

// The group of one: every operation is a copy.
// `copy` is for tensors that are not in host memory.
using CopyTensor = std::function<void(ConstTensorView from, TensorView to)>;
std::unique_ptr<ProcessGroup> make_single_group(const std::string& name, CopyTensor copy = {});
// Device memory that a group over NCCL takes: at the start, and with its first sum of floats (comm/nccl/staged_sums.h).
inline constexpr int64_t kDeviceGroupBytes = 8;
inline constexpr int64_t kDeviceStagingBytes = int64_t{32} << 20;

// Counts traffic and moves nothing: the planner's.
std::unique_ptr<ProcessGroup> make_meta_group(int rank, int size, const std::string& name);

}  // namespace trivet::comm
