// What one block of a model does for one microbatch on one tensor rank: its own code, run on meta kernels and a group that only
// counts. No cost is in it yet: that is a cluster's (autotune/step_model.h).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/process_group.h"
#include "kernels/observed_kernels.h"
#include "model/model.h"

namespace trivet::autotune {

// An operation on the tensor axis; bytes of what is whole (collective_cost.h).
struct AxisOperation {
  comm::Operation operation = comm::Operation::Barrier;
  double bytes = 0;
};

// In the order of the code: a kernel; an operation that is started; the place where the next kernel waits for all operations
// that were started up to one.
struct Work {
  enum class Kind : uint8_t { Kernel, Operation, Wait };
  struct Item {
    Kind kind = Kind::Kernel;
    size_t index = 0;  // of the call, of the operation; of operations that have ended behind a wait: their number
  };
  std::vector<kernels::KernelCall> calls;
  std::vector<AxisOperation> operations;
  std::vector<Item> items;
};

struct BlockWork {
  Work forward, backward;       // of the last block all is in backward: it makes loss and gradients at once
  int64_t parameters = 0;       // elements of this tensor rank, tied ones not among them
  int64_t tied_parameters = 0;  // whose owner is another block
  int64_t output_elements = 0;  // of what goes to the next block, on this rank; 0 behind the last
  int64_t saved_bytes = 0;      // kept from forward to backward, the block's input among it
  int64_t pending_bytes = 0;    // kept from backward_input to backward_weight where they are apart, the above among it
  int64_t peak_bytes = 0;       // at most at a time, while it computes
};

struct BlockSite {
  int64_t microbatch = 1;  // sequences
  DType dtype = DType::BFloat16;
  int tensor = 1;
  bool sequence_parallel = false;
  bool recompute_attention = false;
};

// [block of the model]. Blocks that are alike are run once.
std::vector<BlockWork> work_of_blocks(const model::Model& model, const BlockSite& site);

}  // namespace trivet::autotune
