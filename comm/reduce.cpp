#include "comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace trivet::comm {
namespace {

// Each function is compiled for several instruction sets, and one version is chosen when the program starts. Additions and
// conversions round alike in all versions. (Sanitizers start too late for the choice.)
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRIVET_COMM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIVET_COMM_CLONES
#endif

using Sources = std::span<const void* const>;
using Targets = std::span<void* const>;

constexpr int64_t kTreeBlock = 256;
constexpr int64_t kBlock = 1024;  // its sum stays in the first-level cache while the ranks' pieces stream past

template <typename Number>
struct Plus {
  [[gnu::always_inline]] Number operator()(Number sum, Number term) const { return sum + term; }
};
template <typename Number>
struct Larger {  // NaN propagates
  [[gnu::always_inline]] Number operator()(Number largest, Number term) const {
    return term > largest || term != term ? term : largest;
  }
};

// Stored elements are combined as Numbers: bfloat16 as float, int64_t as uint64_t when it may wrap.
template <typename Number, typename Stored, typename Combine>
[[gnu::always_inline]] inline void combine(Sources from, Targets to, int64_t count, Combine combine_two) {
  alignas(64) Number block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    const auto* first = static_cast<const Stored*>(from[0]) + begin;
    for (int64_t i = 0; i < length; ++i) block[i] = static_cast<Number>(first[i]);
    for (const void* source : from.subspan(1)) {
      const auto* terms = static_cast<const Stored*>(source) + begin;
      for (int64_t i = 0; i < length; ++i) block[i] = combine_two(block[i], static_cast<Number>(terms[i]));
    }
    for (void* target : to) {
      auto* out = static_cast<Stored*>(target) + begin;
      for (int64_t i = 0; i < length; ++i) out[i] = static_cast<Stored>(block[i]);
    }
  }
}

constexpr size_t kTreeBlocks = 32;  // a group has fewer than 2^32 ranks

// The sum of elements [begin, begin + length) of all sources, left in blocks[0]: like a binary counter, equal halves are added
// as soon as both are known.
template <typename Number, typename Stored>
[[gnu::always_inline]] inline void sum_in_tree(Sources from, int64_t begin, int64_t length, Number (*blocks)[kTreeBlock]) {
  size_t held = 0;
  for (size_t source = 0; source < from.size(); ++source) {
    const auto* terms = static_cast<const Stored*>(from[source]) + begin;
    for (int64_t i = 0; i < length; ++i) blocks[held][i] = static_cast<Number>(terms[i]);
    ++held;
    for (size_t carry = source; carry & 1; carry >>= 1, --held)
      for (int64_t i = 0; i < length; ++i) blocks[held - 2][i] += blocks[held - 1][i];
  }
}

template <typename Number, typename Stored>
[[gnu::always_inline]] inline void tree_sum(Sources from, Targets to, int64_t count) {
  alignas(64) Number blocks[kTreeBlocks][kTreeBlock];
  for (int64_t begin = 0; begin < count; begin += kTreeBlock) {
    const int64_t length = std::min(kTreeBlock, count - begin);
    sum_in_tree<Number, Stored>(from, begin, length, blocks);
    for (void* target : to) {
      auto* out = static_cast<Stored*>(target) + begin;
      for (int64_t i = 0; i < length; ++i) out[i] = static_cast<Stored>(blocks[0][i]);
    }
  }
}

TRIVET_COMM_CLONES void tree_sum_float32(Sources from, Targets to, int64_t count) { tree_sum<float, float>(from, to, count); }
TRIVET_COMM_CLONES void tree_sum_bfloat16(Sources from, Targets to, int64_t count) {
  tree_sum<float, bfloat16>(from, to, count);
}

TRIVET_COMM_CLONES void sum_float32(Sources from, Targets to, int64_t count) {
  combine<float, float>(from, to, count, Plus<float>{});
}
TRIVET_COMM_CLONES void sum_bfloat16(Sources from, Targets to, int64_t count) {
  combine<float, bfloat16>(from, to, count, Plus<float>{});
}
TRIVET_COMM_CLONES void sum_float16(Sources from, Targets to, int64_t count) {
  combine<float, float16>(from, to, count, Plus<float>{});
}
TRIVET_COMM_CLONES void sum_float64(Sources from, Targets to, int64_t count) {
  combine<double, double>(from, to, count, Plus<double>{});
}
TRIVET_COMM_CLONES void sum_int64(Sources from, Targets to, int64_t count) {
  combine<uint64_t, int64_t>(from, to, count, Plus<uint64_t>{});
}
TRIVET_COMM_CLONES void sum_int32(Sources from, Targets to, int64_t count) {
  combine<uint32_t, int32_t>(from, to, count, Plus<uint32_t>{});
}

void max_of(DType dtype, Sources from, Targets to, int64_t count) {
  switch (dtype) {
    case DType::Float32: return combine<float, float>(from, to, count, Larger<float>{});
    case DType::BFloat16: return combine<float, bfloat16>(from, to, count, Larger<float>{});
    case DType::Float16: return combine<float, float16>(from, to, count, Larger<float>{});
    case DType::Float64: return combine<double, double>(from, to, count, Larger<double>{});
    case DType::Int64: return combine<int64_t, int64_t>(from, to, count, Larger<int64_t>{});
    case DType::Int32: return combine<int32_t, int32_t>(from, to, count, Larger<int32_t>{});
    default: throw std::logic_error("reduce: max of this dtype is not defined");
  }
}

void tree_sum_of(DType dtype, Sources from, Targets to, int64_t count) {
  switch (dtype) {
    case DType::Float32: return tree_sum_float32(from, to, count);
    case DType::BFloat16: return tree_sum_bfloat16(from, to, count);
    case DType::Float16: return tree_sum<float, float16>(from, to, count);
    case DType::Float64: return tree_sum<double, double>(from, to, count);
    case DType::Int64: return sum_int64(from, to, count);  // order does not matter for integers
    case DType::Int32: return sum_int32(from, to, count);
    default: throw std::logic_error("reduce: tree sum of this dtype is not defined");
  }
}

// A part of a reduction of Stored elements: starts with, and leaves, Numbers.
template <typename Number, typename Stored, typename Combine>
void combine_part(const void* start, Sources from, void* to, int64_t count, Combine combine_two) {
  auto* out = static_cast<Number*>(to);
  const auto* first = static_cast<const Number*>(start);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Sources rest = from;
    if (first) {
      std::copy(first + begin, first + end, out + begin);
    } else {
      const auto* terms = static_cast<const Stored*>(from[0]);
      for (int64_t i = begin; i < end; ++i) out[i] = static_cast<Number>(terms[i]);
      rest = from.subspan(1);
    }
    for (const void* source : rest) {
      const auto* terms = static_cast<const Stored*>(source);
      for (int64_t i = begin; i < end; ++i) out[i] = combine_two(out[i], static_cast<Number>(terms[i]));
    }
  }
}

template <typename Stored>
void tree_part(Sources from, void* to, int64_t count) {
  alignas(64) float blocks[kTreeBlocks][kTreeBlock];
  for (int64_t begin = 0; begin < count; begin += kTreeBlock) {
    const int64_t length = std::min(kTreeBlock, count - begin);
    sum_in_tree<float, Stored>(from, begin, length, blocks);
    std::copy(blocks[0], blocks[0] + length, static_cast<float*>(to) + begin);
  }
}

template <typename Stored>
void reduce_part_of(ReduceOp op, const void* start, Sources from, void* to, int64_t count) {
  switch (op) {
    case ReduceOp::Sum: return combine_part<float, Stored>(start, from, to, count, Plus<float>{});
    case ReduceOp::Max: return combine_part<float, Stored>(start, from, to, count, Larger<float>{});
    case ReduceOp::TreeSum: return tree_part<Stored>(from, to, count);
  }
}

template <typename Stored>
void round_to(const void* sum, Targets to, int64_t count) {
  const auto* from = static_cast<const float*>(sum);
  for (void* target : to)
    for (int64_t i = 0; i < count; ++i) static_cast<Stored*>(target)[i] = static_cast<Stored>(from[i]);
}

}  // namespace

DType sum_type(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Float16 ? DType::Float32 : dtype; }

void reduce_part(DType dtype, ReduceOp op, const void* start, Sources from, void* to, int64_t count) {
  if (dtype == DType::BFloat16) return reduce_part_of<bfloat16>(op, start, from, to, count);
  if (dtype == DType::Float16) return reduce_part_of<float16>(op, start, from, to, count);
  std::vector<const void*> terms(from.begin(), from.end());
  if (start) terms.insert(terms.begin(), start);
  void* const targets[] = {to};
  reduce(dtype, op, terms, targets, count);
}

void round_sum(DType dtype, const void* sum, Targets to, int64_t count) {
  if (dtype == DType::BFloat16) return round_to<bfloat16>(sum, to, count);
  if (dtype == DType::Float16) return round_to<float16>(sum, to, count);
  for (void* target : to)
    if (target != sum) std::memcpy(target, sum, static_cast<size_t>(count * size_of(dtype)));
}

bool can_reduce(DType dtype) { return is_float(dtype) || dtype == DType::Int64 || dtype == DType::Int32; }

void reduce(DType dtype, ReduceOp op, Sources from, Targets to, int64_t count) {
  if (op == ReduceOp::Max) return max_of(dtype, from, to, count);
  if (op == ReduceOp::TreeSum) return tree_sum_of(dtype, from, to, count);
  switch (dtype) {
    case DType::Float32: return sum_float32(from, to, count);
    case DType::BFloat16: return sum_bfloat16(from, to, count);
    case DType::Float16: return sum_float16(from, to, count);
    case DType::Float64: return sum_float64(from, to, count);
    case DType::Int64: return sum_int64(from, to, count);
    case DType::Int32: return sum_int32(from, to, count);
    default: throw std::logic_error("reduce: sum of this dtype is not defined");
  }
}

}  // namespace trivet::comm
