// Sums floats over ranks with exactly the bits that comm/process_group.h promises, which NCCL's own sums do not have: ranks
// exchange unsummed pieces, and each rank sums its own piece in rank order (comm/nccl/rank_sum.h). This sends the same number
// of bytes as a ring and is more exact.
//
// A rank receives a piece from every other rank into one half of the staging memory and sums it from there. If a tensor takes
// several rounds, the next round is received while the previous one is summed:
//
//   stream    exchange 0 | exchange 1 | gather 0 | exchange 2 | gather 1 | ...      (gather: all_reduce only)
//   sums                 | sum 0      |          | sum 1      |
//
// Round k uses half k mod 2. Exchange k + 1 comes after sum k - 1, because gather k - 1 has waited for that.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <vector>

#include "comm/nccl/communicator.h"
#include "comm/nccl/handles.h"
#include "comm/nccl/nccl_resources.h"
#include "comm/nccl/rank_sum.h"
#include "core/buffer.h"

namespace trivet::comm {

class StagedSums {
 public:
  // Both must outlive this object.
  StagedSums(Communicator& communicator, NcclResources& resources);

  void all_reduce(const std::string& during, TensorView data, ReduceOp op, cudaStream_t stream);
  void reduce_scatter(const std::string& during, ConstTensorView whole, TensorView shard, ReduceOp op, cudaStream_t stream);

 private:
  // One exchange: rank r gets `count` elements of every rank's `from`, starting at `first` + r * `stride`. Sums go to `to`.
  // With stride 0, all ranks sum the same elements.
  struct Round {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    int64_t first = 0, stride = 0, count = 0;
    bool gathers = false;  // the sums are gathered to all ranks afterwards
  };
  struct Sides {  // created for the first tensor of several rounds
    cuda::StreamHandle sums;
    cuda::EventHandle received, summed;
  };

  std::vector<Round> rounds_of_all_reduce(TensorView data) const;
  std::vector<Round> rounds_of_reduce_scatter(ConstTensorView whole, TensorView shard) const;
  void run(const std::string& during, const std::vector<Round>& rounds, DType dtype, ReduceOp op, cudaStream_t stream);
  void exchange(const std::string& during, const Round& round, DType dtype, std::byte* half, cudaStream_t stream);
  void sum(const Round& round, DType dtype, ReduceOp op, const std::byte* half, cudaStream_t stream);
  void gather(const std::string& during, const Round& round, DType dtype, cudaStream_t stream);
  int64_t most_elements(DType dtype) const;
  std::byte* half(size_t round);

  Communicator& communicator_;
  NcclResources& resources_;
  Buffer staging_;
  std::optional<Sides> sides_;
};

}  // namespace trivet::comm
