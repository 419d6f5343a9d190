// The message in which a rank tells the others about a tensor that it has submitted. The tensors of all ranks are matched by
// name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "hvd/types.h"

namespace trivet::hvd {

struct Request {
  std::string name;
  Collective collective = Collective::Allreduce;
  DType dtype = DType::Float32;
  Shape shape{0};
  ReduceOp op = ReduceOp::Sum;
  Compression compression = Compression::None;
  double prescale_factor = 1, postscale_factor = 1;
  int root = 0;                 // broadcast: rank within the process set
  std::vector<int64_t> splits;  // alltoall: rows for each rank of the process set

  bool operator==(const Request&) const = default;
};

// The type in which the tensor travels.
DType wire_dtype(const Request& request);

inline constexpr size_t kMaxNameBytes = 4096;

std::string encode(const Request& request);
// Throws CommError (VersionSkew) for bytes that encode() does not make.
Request decode(std::string_view bytes);

}  // namespace trivet::hvd
