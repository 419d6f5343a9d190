// A group whose ranks share memory: threads of a process, or processes of a host. They differ only in their SharedMemory.
#pragma once

#include "comm/collectives.h"
#include "comm/host_group.h"
#include "comm/messages.h"

namespace trivet::comm {

class SharedGroup final : public HostGroup {
 public:
  // `while_waiting`: see CounterWait.
  SharedGroup(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<SharedMemory> memory,
              std::function<void()> while_waiting = {});

  int rank() const override { return wait_.rank(); }
  int size() const override { return wait_.size(); }
  const std::string& name() const override { return wait_.errors().self().group; }

  // Blocks until all ranks of this group have called it. Operations of this group may be in flight meanwhile.
  std::unique_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override;

  // All ranks meet for the last time. Blocks.
  void close();

 private:
  void run(const Call& call) override { collectives_.run(call); }
  void run_send(const OperationHeader& header, ConstTensorView data) override { messages_.send(header, data); }
  void run_receive(const OperationHeader& header, TensorView data) override { messages_.receive(header, data); }

  std::shared_ptr<SharedMemory> memory_;
  const std::function<void()> while_waiting_;
  Board board_;
  CounterWait wait_;
  Collectives collectives_;
  Messages messages_;
  Lane control_;
};

}  // namespace trivet::comm
