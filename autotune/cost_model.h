// What one kernel and one operation of a group take somewhere: measured here (hardware_profile.h) or reckoned for machines that
// need not be here.
#pragma once

#include <cstdint>

#include "comm/process_group.h"
#include "core/dtype.h"
#include "kernels/observed_kernels.h"

namespace trivet::autotune {

struct OperationCall {
  comm::Operation operation = comm::Operation::Barrier;
  comm::ReduceOp reduce = comm::ReduceOp::Sum;  // of an all_reduce or reduce_scatter
  DType dtype = DType::Float32;
  int64_t bytes = 0;  // of what is whole: a rank's own part of an all_gather times the ranks
  int ranks = 1;
};

// Seconds on the rank's own stream or thread.
class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double kernel_seconds(const kernels::KernelCall& call) const = 0;
  // From when the last rank is there; a receive takes nothing beside its send.
  virtual double operation_seconds(const OperationCall& call) const = 0;
  // From giving work to a stream that overlaps to knowing that it is done, beside the work itself.
  virtual double handover_seconds() const { return 0; }
  // What runs beside the kernels takes the time of their cores.
  virtual bool streams_share_cores() const { return false; }
};

}  // namespace trivet::autotune
