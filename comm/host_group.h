// The common part of all groups whose operations run on the host: they check their arguments on the caller's thread, count
// their traffic, and run blocking on the stream. The group must outlive its queued work. Only one collective operation runs at
// a time, but sends and receives with different peers may overlap.
#pragma once

#include <atomic>
#include <optional>

#include "comm/call.h"

namespace trivet::comm {

class HostGroup : public ProcessGroup {
 public:
  void all_reduce(TensorView data, ReduceOp op, Stream& stream) final;
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) final;
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) final;
  void broadcast(TensorView data, int root, Stream& stream) final;
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) final;
  void all_to_all_v(ConstTensorView in, TensorView out, const ExchangeCounts& counts, Stream& stream) final;
  void send(ConstTensorView data, int peer, Stream& stream) final;
  void receive(TensorView data, int peer, Stream& stream) final;
  void barrier(Stream& stream) final;
  Traffic traffic() const final { return {operations_.load(), bytes_sent_.load()}; }

 protected:
  // Each returns when this rank's part of the operation is done.
  virtual void run(const Call& call) = 0;
  virtual void run_send(const OperationHeader& header, ConstTensorView data) = 0;
  virtual void run_receive(const OperationHeader& header, TensorView data) = 0;

 private:
  void count(int64_t bytes);
  void collective(const Call& call, Stream& stream);

  std::atomic<int64_t> operations_{0}, bytes_sent_{0};
};

// `during` is this rank's operation. Returns the operation in which `peer` waits for this rank, if one of them is a message and
// the other a collective operation: these two never meet. Both `collectives` and `messages` have ahead(peer).
template <typename Collectives, typename Messages>
std::optional<OperationHeader> waits_elsewhere(const Collectives& collectives, const Messages& messages, int peer,
                                               const OperationHeader& during) {
  if (during.occasion != Occasion::Operation) return std::nullopt;
  const bool message = during.operation == Operation::Send || during.operation == Operation::Receive;
  return message ? collectives.ahead(peer) : messages.ahead(peer);
}

}  // namespace trivet::comm
