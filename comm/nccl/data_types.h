// Maps our element types to NCCL's, and classifies its results.
#pragma once

#include <nccl.h>

#include <stdexcept>

#include "core/dtype.h"

namespace trivet::comm {

inline ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::Float32: return ncclFloat32;
    case DType::BFloat16: return ncclBfloat16;
    case DType::Float16: return ncclFloat16;
    case DType::Float64: return ncclFloat64;
    case DType::Int64: return ncclInt64;
    case DType::Int32: return ncclInt32;
    case DType::UInt8: return ncclUint8;
    case DType::UInt16: return ncclFloat16;  // elements of this type are only moved
  }
  throw std::logic_error("nccl: unknown dtype");
}

// Within a group, calls on a non-blocking communicator may return that they are in progress, which is not an error.
inline bool went_wrong(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

}  // namespace trivet::comm
