// Runs what all ranks of a process set have agreed on. One thread: that of the process set.
#pragma once

#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "hvd/handle.h"
#include "hvd/request_table.h"
#include "hvd/timeline.h"

namespace trivet::hvd {

// A request of this rank, with the memory that it is about.
struct Submission {
  Request request;
  ConstTensorView in;
  TensorView out;  // may be `in`; where the caller cannot know the size of the result, it is made as `result`
  Tensor result;
  std::vector<int64_t> received_splits;
  std::promise<Result> promise;
  std::shared_ptr<InFlight> in_flight = std::make_shared<InFlight>();
};

// A tensor that is ready, and this rank's part in it; null if this rank has joined.
struct Item {
  const Agreed* agreed = nullptr;
  Submission* mine = nullptr;
};

class Operations {
 public:
  // Both must outlive this. Names of the set's tensors begin with `prefix` in the timeline.
  Operations(comm::ProcessGroup& group, Timeline& timeline, std::string prefix);

  // Collective: all ranks run the same batches in the same order. The items of a batch with several are allreduces that fuse()
  // has put together. Results are in the submissions when this returns.
  void run(std::span<const Item> batch);

 private:
  void allreduce(std::span<const Item> batch, const std::vector<std::string>& rows);
  void allgather(const Item& item);
  void broadcast(const Item& item);
  void alltoall(const Item& item);
  void reducescatter(const Item& item);

  TensorView scratch(DType dtype, int64_t elements);
  void reduce(TensorView data, std::span<const int64_t> counts, ReduceOp op);

  comm::ProcessGroup& group_;
  Timeline& timeline_;
  std::string prefix_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::byte> scratch_;  // grows to the largest size that was needed
};

// Rows of a tensor with `rows` rows that a rank gets in reducescatter: the first ranks have one more if they do not divide.
int64_t rows_of_rank(int64_t rows, int rank, int ranks);

}  // namespace trivet::hvd
