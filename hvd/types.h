// The words of Horovod that several headers here use: operations, compression, named tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "core/tensor_view.h"

namespace trivet::hvd {

// The way in which the values of the ranks are combined, element by element; Adasum combines whole tensors (adasum.h).
enum class ReduceOp : uint8_t { Average, Sum, Min, Max, Product, Adasum };
// The names that Horovod gives them: hvd::Average ...
inline constexpr ReduceOp Average = ReduceOp::Average, Sum = ReduceOp::Sum, Min = ReduceOp::Min, Max = ReduceOp::Max,
                          Product = ReduceOp::Product, Adasum = ReduceOp::Adasum;

// The type in which float32 and float64 tensors travel between ranks. Other types travel as they are.
enum class Compression : uint8_t { None, Fp16, Bf16 };

enum class Collective : uint8_t { Allreduce, Allgather, Broadcast, Alltoall, Reducescatter, Barrier };

// A parameter, a gradient or an optimizer state of the user's, under the name by which ranks match it.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

// Views of the user's memory. Without a shape the tensor has one dim.
template <typename T>
TensorView view(std::span<T> data) {
  return {data.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(data.size())}};
}
template <typename T>
TensorView view(std::vector<T>& data) {
  return view(std::span<T>(data));
}
template <typename T>
TensorView view(std::vector<T>& data, const Shape& shape) {
  return view(std::span<T>(data)).reshaped(shape);
}
template <typename T>
ConstTensorView view(const std::vector<T>& data) {
  return {data.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(data.size())}};
}

}  // namespace trivet::hvd

namespace trivet {
template <>
struct EnumNames<hvd::ReduceOp> {
  static constexpr std::array<std::pair<std::string_view, hvd::ReduceOp>, 6> table{{{"average", hvd::ReduceOp::Average},
                                                                                    {"sum", hvd::ReduceOp::Sum},
                                                                                    {"min", hvd::ReduceOp::Min},
                                                                                    {"max", hvd::ReduceOp::Max},
                                                                                    {"product", hvd::ReduceOp::Product},
                                                                                    {"adasum", hvd::ReduceOp::Adasum}}};
};
template <>
struct EnumNames<hvd::Compression> {
  static constexpr std::array<std::pair<std::string_view, hvd::Compression>, 3> table{
      {{"none", hvd::Compression::None}, {"fp16", hvd::Compression::Fp16}, {"bf16", hvd::Compression::Bf16}}};
};
template <>
struct EnumNames<hvd::Collective> {
  static constexpr std::array<std::pair<std::string_view, hvd::Collective>, 6> table{
      {{"allreduce", hvd::Collective::Allreduce},
       {"allgather", hvd::Collective::Allgather},
       {"broadcast", hvd::Collective::Broadcast},
       {"alltoall", hvd::Collective::Alltoall},
       {"reducescatter", hvd::Collective::Reducescatter},
       {"barrier", hvd::Collective::Barrier}}};
};
}  // namespace trivet
