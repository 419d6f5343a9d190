// The kernels of the CPU: one function compute() for the arguments of each (kernels/list.h). The headers in kernels/kernels.h
// say what they compute; the caller has checked the arguments.
//
// `threads` is how many OpenMP threads a call may use (at least 1; it uses fewer if the work is small). The bits of a result
// never depend on it: the shapes alone decide how work is cut into pieces, and each piece is done by one thread in a fixed
// order. Several threads of a process (ranks) may call these functions at the same time.
//
// The memory-bound ones, in fused/, make one pass over their tensors. They have the same bits for any alignment and, since they
// are compiled without contraction of products and sums (CMakeLists.txt), any instruction set.
#pragma once

#include "kernels/kernels.h"

namespace trivet::kernels::cpu {

#define TRIVET_DECLARE(Arguments, ...) void compute(const Arguments& args, int threads);
TRIVET_NAMED_KERNELS(TRIVET_DECLARE)
TRIVET_OTHER_KERNELS(TRIVET_DECLARE)
#undef TRIVET_DECLARE

// Computes elements [begin, end) of a sum with a residual, on the calling thread.
void add_dropped_elements(const DropoutAdd& sum, int64_t begin, int64_t end);

}  // namespace trivet::kernels::cpu
