#include "hvd/slices.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "hvd/adasum.h"
#include "hvd/convert.h"
#include "hvd/tensor.h"

namespace trivet::hvd {
namespace {

struct Slicing {
  std::span<const int64_t> counts;  // elements of each tensor
  std::vector<int64_t> lengths;     // elements of a slice of each
  int64_t total = 0;                // sum over all slices of one rank

  Slicing(std::span<const int64_t> of_tensors, int ranks) : counts(of_tensors) {
    for (int64_t count : counts) lengths.push_back((count + ranks - 1) / ranks);
    for (int64_t length : lengths) total += length;
  }
};

// Calls body(range in the tensors, range in the slices of all ranks) for every piece that is not empty.
template <typename Body>
void for_each_piece(const Slicing& slicing, int ranks, const Body& body) {
  int64_t tensor_begin = 0, slice_begin = 0;
  for (size_t t = 0; t < slicing.counts.size(); ++t) {
    const int64_t length = slicing.lengths[t];
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t first = std::min(rank * length, slicing.counts[t]);
      const int64_t count = std::min(length, slicing.counts[t] - first);
      if (count > 0) body(tensor_begin + first, rank * slicing.total + slice_begin, count);
    }
    tensor_begin += slicing.counts[t];
    slice_begin += length;
  }
}

template <typename Number, typename T>
void multiply(std::span<const T* const> from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    auto product = static_cast<Number>(from[0][i]);
    for (const T* rank : from.subspan(1)) product *= static_cast<Number>(rank[i]);
    to[i] = static_cast<T>(product);
  }
}

template <typename Number, typename T>
void smallest(std::span<const T* const> from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    auto least = static_cast<Number>(from[0][i]);
    for (const T* rank : from.subspan(1)) {
      const auto value = static_cast<Number>(rank[i]);
      if (value < least || value != value) least = value;
    }
    to[i] = static_cast<T>(least);
  }
}

// T: as stored. Number: as computed; unsigned for integers in a product, which may wrap.
template <typename T, typename Number, typename Factor>
void combine_elements(TensorView of_all, int ranks, ReduceOp op) {
  const int64_t count = of_all.elements() / ranks;
  std::vector<const T*> from;
  for (int rank = 0; rank < ranks; ++rank) from.push_back(of_all.as<T>() + rank * count);
  if (op == ReduceOp::Min)
    smallest<Number, T>(from, of_all.as<T>(), count);
  else
    multiply<Factor, T>(from, of_all.as<T>(), count);
}

void combine_adasum(comm::ProcessGroup& group, TensorView of_all, const Slicing& slicing, Stream& stream) {
  const DType number = of_all.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  Tensor wide(number, of_all.shape);
  convert(of_all, wide.view());
  const auto sum = [&](std::span<double> numbers) {
    group.all_reduce(view(numbers), comm::ReduceOp::Sum, stream);
    stream.synchronize();
  };
  const auto run = [&]<typename T>(T* data) {
    std::vector<std::span<T>> pieces;
    for (int rank = 0; rank < group.size(); ++rank)
      pieces.emplace_back(data + rank * slicing.total, static_cast<size_t>(slicing.total));
    adasum(std::move(pieces), slicing.lengths, sum);
  };
  if (number == DType::Float64)
    run(wide.view().as<double>());
  else
    run(wide.view().as<float>());
  convert(wide.view().slice(0, slicing.total), of_all.slice(0, slicing.total));
}

// The result is where the slice of rank 0 was.
void combine_slices(comm::ProcessGroup& group, TensorView of_all, const Slicing& slicing, ReduceOp op, Stream& stream) {
  if (op == ReduceOp::Adasum) return combine_adasum(group, of_all, slicing, stream);
  const int ranks = group.size();
  switch (of_all.dtype) {
    case DType::Float32: return combine_elements<float, float, float>(of_all, ranks, op);
    case DType::BFloat16: return combine_elements<bfloat16, float, float>(of_all, ranks, op);
    case DType::Float16: return combine_elements<float16, float, float>(of_all, ranks, op);
    case DType::Float64: return combine_elements<double, double, double>(of_all, ranks, op);
    case DType::Int64: return combine_elements<int64_t, int64_t, uint64_t>(of_all, ranks, op);
    case DType::Int32: return combine_elements<int32_t, int32_t, uint32_t>(of_all, ranks, op);
    default: throw std::logic_error("hvd: reduce_in_slices of a type without arithmetic");
  }
}

}  // namespace

void reduce_in_slices(comm::ProcessGroup& group, TensorView data, std::span<const int64_t> counts, ReduceOp op,
                      Stream& stream) {
  const int ranks = group.size();
  const Slicing slicing(counts, ranks);
  Tensor sliced(data.dtype, {ranks * slicing.total}), of_all(data.dtype, {ranks * slicing.total});
  for_each_piece(slicing, ranks, [&](int64_t in_tensors, int64_t in_slices, int64_t count) {
    convert(data.slice(in_tensors, count), sliced.view().slice(in_slices, count));
  });
  group.all_to_all(sliced.view(), of_all.view(), stream);
  stream.synchronize();
  combine_slices(group, of_all.view(), slicing, op, stream);
  group.all_gather(of_all.view().slice(0, slicing.total), sliced.view(), stream);
  stream.synchronize();
  for_each_piece(slicing, ranks, [&](int64_t in_tensors, int64_t in_slices, int64_t count) {
    convert(sliced.view().slice(in_slices, count), data.slice(in_tensors, count));
  });
}

}  // namespace trivet::hvd
