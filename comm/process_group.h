// Ranks that communicate. One interface serves threads of one process, processes of one host or of several, and GPUs.
//
// Counts are in elements. All ranks of a group must make the same calls in the same order. Every call carries a header
// (sequence number, operation, dtype, count, root); if headers differ, all ranks get a CommError (RanksDisagree) with both
// headers. A call is work on a stream: it is enqueued, and it is complete when an event recorded after it is complete. Views
// must stay valid until then. Two calls on one group must be on one stream, or ordered by events. Errors name the group, world
// rank, host and operation. A peer that died causes CommError PeerLost within a second; one that never arrives causes
// NoProgress at the deadline.
//
// Bytes that a rank sends, for n ranks and c elements of b bytes (docs/communication.md): all_gather and reduce_scatter send
// (n-1)/n * whole, all_reduce sends twice that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "core/operation.h"
#include "core/stream.h"
#include "core/tensor_view.h"

namespace trivet::comm {

// Sum of float32, bfloat16 or float16 adds in float32, in rank order, and rounds once, so it has the same bits on every rank
// and in every run. Sum of float64 adds in rank order. (HostSums::Exchange is another fixed order, host_sums.h.) Sum of int64
// is exact. Max accepts all of these types (it is used for flags and digests). TreeSum is like Sum but adds neighbours first,
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and needs a group whose size is a power of two. If each rank's value is the result
// of such a tree over its own terms, the bits do not depend on how many ranks share all the terms.
enum class ReduceOp : uint8_t { Sum, Max, TreeSum };

using trivet::Operation;  // core/operation.h, for those who only name operations
}  // namespace trivet::comm

namespace trivet {
template <>
struct EnumNames<comm::ReduceOp> {
  static constexpr std::array<std::pair<std::string_view, comm::ReduceOp>, 3> table{
      {{"sum", comm::ReduceOp::Sum}, {"max", comm::ReduceOp::Max}, {"tree_sum", comm::ReduceOp::TreeSum}}};
};
}  // namespace trivet

namespace trivet::comm {

// Counts what a group has sent since the start, for comparison with the formulas.
struct Traffic {
  int64_t operations = 0;
  int64_t bytes_sent = 0;  // by this rank, as the formula counts them
};

// Numbers of elements that a rank sends to, and receives from, each rank of the group in all_to_all_v; by group rank.
struct ExchangeCounts {
  std::vector<int64_t> sent, received;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;

  // data[c] = sum over ranks, on all of them.
  virtual void all_reduce(TensorView data, ReduceOp, Stream&) = 0;
  // whole[size * c] on each rank; shard[c] = sum over ranks of their whole[rank * c ...]. shard may be this rank's part of
  // whole.
  virtual void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp, Stream&) = 0;
  // whole[size * c] = shards[c] of all ranks in rank order. shard may be this rank's part of whole.
  virtual void all_gather(ConstTensorView shard, TensorView whole, Stream&) = 0;
  virtual void broadcast(TensorView data, int root, Stream&) = 0;
  // out[r * c ...] = what rank r had in in[rank * c ...]
  virtual void all_to_all(ConstTensorView in, TensorView out, Stream&) = 0;
  // The same with counts that differ: `in` is what rank 0 gets from this rank, then what rank 1 gets, ...; `out` is what this
  // rank gets from rank 0, then from rank 1, ... What one rank sends, the other must receive: if rank a's sent[b] is not rank
  // b's received[a], both get a CommError (RanksDisagree) with both counts, and the job ends. Counts may be 0. The tensors must
  // not overlap.
  virtual void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream&) = 0;
  // A rendezvous: send completes (in stream order) when the peer has received. Callers must not rely on buffering.
  virtual void send(ConstTensorView data, int peer, Stream&) = 0;
  virtual void receive(TensorView data, int peer, Stream&) = 0;
  virtual void barrier(Stream&) = 0;

  // A group of some ranks of this one, given as ascending group ranks. All ranks of this group must call it with the same
  // arguments; those that are not members get null. Its operations are independent of this group's.
  virtual std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) = 0;

  virtual Traffic traffic() const = 0;
};

// The group of one rank: every operation is a copy. `copy` is needed for tensors that are not in host memory.
using CopyTensor = std::function<void(ConstTensorView from, TensorView to)>;
std::unique_ptr<ProcessGroup> make_single_group(const std::string& name, CopyTensor copy = {});
// Device memory that an NCCL group allocates: at the start, and for its first sum of floats (comm/nccl/staged_sums.h).
inline constexpr int64_t kDeviceGroupBytes = 8;
inline constexpr int64_t kDeviceStagingBytes = int64_t{32} << 20;

// A group for the planner, which counts traffic and moves nothing.
std::unique_ptr<ProcessGroup> make_meta_group(int rank, int size, const std::string& name);

}  // namespace trivet::comm
