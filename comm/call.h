// A collective operation with its tensors, as one rank runs it.
#pragma once

#include "comm/operation_header.h"

namespace trivet::comm {

// `in` and `out` are the tensors of the operation as process_group.h describes them; they are the same tensor where it has only
// one.
struct Call {
  OperationHeader header;
  ConstTensorView in;
  TensorView out;
  ExchangeCounts counts = {};  // all_to_all_v only
};

}  // namespace trivet::comm
