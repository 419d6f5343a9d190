// The interface for the time of one kernel and of one operation of a group, whether it was measured on this machine
// (hardware_profile.h) or is calculated for machines that need not be available.
#pragma once

#include <cstdint>

#include "comm/process_group.h"
#include "core/dtype.h"
#include "kernels/observed_kernels.h"

namespace trivet::autotune {

struct OperationCall {
  comm::Operation operation = comm::Operation::Barrier;
  comm::ReduceOp reduce = comm::ReduceOp::Sum;  // for an all_reduce or reduce_scatter
  DType dtype = DType::Float32;
  int64_t bytes = 0;  // size of the whole tensor: for an all_gather, a rank's own part times the ranks
  int ranks = 1;
};

// Gives seconds on the rank's own stream or thread.
class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double kernel_seconds(const kernels::KernelCall& call) const = 0;
  // Counted from when the last rank arrives; a receive takes no time in addition to its send.
  virtual double operation_seconds(const OperationCall& call) const = 0;
  // The time from giving work to an overlapping stream to knowing that it is done, in addition to the work itself.
  virtual double handover_seconds() const { return 0; }
  // True if work that overlaps the kernels takes time from their cores.
  virtual bool streams_share_cores() const { return false; }
};

}  // namespace trivet::autotune
