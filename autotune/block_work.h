// Records what one block of a model does for one microbatch on one tensor, context and expert rank, by running its code on meta
// kernels and groups that only count. It contains no costs yet; these come from a cluster (autotune/step_model.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "core/axis.h"
#include "core/sequence_part.h"
#include "kernels/observed_kernels.h"
#include "model/model.h"

namespace trivet::autotune {

// An operation on the tensor, context or expert axis. `bytes` is the size of the whole tensor (S in collective_cost.h), or what
// a rank sends to one other rank.
struct AxisOperation {
  Axis axis = Axis::Tensor;
  comm::Operation operation = comm::Operation::Barrier;
  double bytes = 0;
  int ranks = 1, stride = 1;  // that take part, and how far apart they are on the axis
};

// The work of a block in program order. Each item is a kernel, the start of an operation, or a wait for one and all before it
// on its axis.
struct PassWork {
  enum class Kind : uint8_t { Kernel, Operation, Wait };
  struct Item {
    Kind kind = Kind::Kernel;
    size_t index = 0;  // the call's or operation's
  };
  std::vector<kernels::KernelCall> calls;
  std::vector<AxisOperation> operations;
  std::vector<Item> items;
};

struct BlockWork {
  PassWork forward, backward;   // the block that computes the loss has all in backward: it computes the gradients at once
  PassWork again;               // what full recomputation runs; empty for the first block and the loss
  int64_t parameters = 0;       // elements on this tensor rank, without tied ones
  int64_t tied_parameters = 0;  // elements that another block owns
  int64_t trained = 0, tied_trained = 0;              // the elements above that are not frozen
  int64_t expert_parameters = 0, expert_trained = 0;  // the parts of `parameters` and `trained` that only some ranks have
  int64_t output_elements = 0;  // elements passed to the next block, on this rank; 0 if it computes the loss
  int64_t saved_bytes = 0;      // kept from forward to backward, including the block's input
  int64_t pending_bytes = 0;    // kept from backward_input to backward_weight if these run separately, including the input
  int64_t peak_bytes = 0;       // the most at any time while it computes
};

struct BlockSite {
  int64_t microbatch = 1;  // samples
  DType dtype = DType::BFloat16;
  int tensor = 1, context = 1;
  int expert = 1;  // ranks that share experts
  bool sequence_parallel = false;
  ContextKind context_kind = ContextKind::Ulysses;
  int context_neighbours = 1;  // for UlyssesRing
  bool recompute_attention = false;
};

// [block of the model] Consecutive blocks of the same class, with the same parameters and input, are run once and share one
// work.
using Works = std::vector<std::shared_ptr<const BlockWork>>;

class BlockWorks {
 public:
  // The model must outlive it.
  explicit BlockWorks(const model::Model& model);
  Works at(const BlockSite& site) const;

 private:
  const model::Model& model_;
  std::vector<bool> repeats_;  // [block] whether it is of the class of the block before, with the same parameters
};

inline Works work_of_blocks(const model::Model& model, const BlockSite& site) { return BlockWorks(model).at(site); }

}  // namespace trivet::autotune
