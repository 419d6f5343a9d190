// A group whose ranks share memory: threads of a process, or processes of a host. They differ only in their SharedMemory.
//
// Operations check their arguments on the caller's thread, count their traffic, and run on the stream. The group must outlive
// its queued work. Only one operation runs at a time, but sends and receives with different peers may overlap.
#pragma once

#include <atomic>

#include "comm/collectives.h"
#include "comm/messages.h"
#include "comm/world.h"

namespace trivet::comm {

// Options for the rank that messages call `who`; reports go where `options` says.
WorldActivity::Options activity_options(int rank, int size, const std::string& who, const WorldOptions& options);

class SharedGroup final : public ProcessGroup {
 public:
  SharedGroup(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<SharedMemory> memory);

  int rank() const override { return wait_.rank(); }
  int size() const override { return wait_.size(); }
  const std::string& name() const override { return wait_.errors().self().group; }

  void all_reduce(TensorView data, ReduceOp op, Stream& stream) override;
  void reduce_scatter(ConstTensorView whole, TensorView shard, ReduceOp op, Stream& stream) override;
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override;
  void broadcast(TensorView data, int root, Stream& stream) override;
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override;
  void send(ConstTensorView data, int peer, Stream& stream) override;
  void receive(TensorView data, int peer, Stream& stream) override;
  void barrier(Stream& stream) override;

  // Blocks until all ranks of this group have called it. Operations of this group may be in flight meanwhile.
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override;
  Traffic traffic() const override { return {operations_.load(), bytes_sent_.load()}; }

  // All ranks meet for the last time. Blocks.
  void close();

 private:
  void count(const OperationHeader& header);
  void collective(Call call, Stream& stream);
  std::optional<OperationHeader> waits_elsewhere(int peer, const OperationHeader& during) const;

  std::shared_ptr<SharedMemory> memory_;
  Board board_;
  CounterWait wait_;
  Collectives collectives_;
  Messages messages_;
  Lane control_;
  std::atomic<int64_t> operations_{0}, bytes_sent_{0};
};

}  // namespace trivet::comm
