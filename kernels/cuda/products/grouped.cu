// Products of experts. Tiles of out are of a fixed size, and every element is summed over K in steps that begin where its range
// of K begins. So its bits depend neither on the number of rows of its expert, nor on how rows and columns are cut, nor on
// alignment. Who has which rows is read on the device: there are as many blocks as the rows could need, and those that find no
// tile end at once.
//
// bfloat16 and float16 run on tensor cores (mma.sync), the other types on the ordinary units.
//
// Not yet fast: tiles are small (64 x 64), nothing is shared between blocks, and there is neither wgmma nor a schedule that
// evens out experts with many and with few rows. cuBLAS's grouped products are not used: it may choose its kernels by the
// number of rows, which the host does not know.
#include <stdexcept>

#include "core/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of a tile of out
constexpr int kLevels = 7;  // levels of the tree: up to 64 leaves

// A row of op(a) or a column of op(b) is a line. In memory, either its elements are adjacent, or the elements of all lines for
// one k are.
enum class Adjacent { InALine, AcrossLines };

// The lines of one operand from which a tile of out is made.
template <typename T, Adjacent kAdjacent>
struct Lines {
  const T* data;
  int64_t stride;
  int count;  // up to kTile

  __device__ __forceinline__ const T* at(int line, int k) const {
    return kAdjacent == Adjacent::InALine ? data + line * stride + k : data + k * stride + line;
  }
};

template <typename T, Adjacent kAdjacent>
__device__ Lines<T, kAdjacent> lines_from(const T* data, int64_t stride, int64_t first, int64_t all) {
  const int count = static_cast<int>(min(all - first, int64_t{kTile}));
  return {data + (kAdjacent == Adjacent::InALine ? first * stride : first), stride, count};
}

// Sums of a tile of out in float32 or float64, by a block of 256 threads. A thread has rows row() + 16 r and columns
// col() + 16 c.
template <typename T, Adjacent kAdjacentA, Adjacent kAdjacentB>
class OrdinaryTile {
 public:
  static constexpr int kThreads = 256, kDepth = 16, kShare = 4;
  static constexpr int kSharedBytes = 2 * kDepth * (kTile + 1) * static_cast<int>(sizeof(T));
  using Sum = T;
  struct Sums {
    Sum of[kShare * kShare];
  };
  __device__ __forceinline__ static Sums sum_of(const Sums& left, Sums right) {
#pragma unroll
    for (int i = 0; i < kShare * kShare; ++i) right.of[i] = left.of[i] + right.of[i];
    return right;
  }

  __device__ OrdinaryTile(Lines<T, kAdjacentA> a, Lines<T, kAdjacentB> b, unsigned char* shared)
      : a_(a), b_(b), a_shared_(reinterpret_cast<T*>(shared)), b_shared_(a_shared_ + kDepth * kStride) {}

  // sums += the products over [begin, end)
  __device__ void add(Sums& sums, int begin, int end) {
    for (int k = begin; k < end; k += kDepth) {
      copy(a_, a_shared_, k, end);
      copy(b_, b_shared_, k, end);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        T left[kShare], right[kShare];
#pragma unroll
        for (int r = 0; r < kShare; ++r) left[r] = a_shared_[i * kStride + row() + 16 * r];
#pragma unroll
        for (int c = 0; c < kShare; ++c) right[c] = b_shared_[i * kStride + col() + 16 * c];
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
          for (int c = 0; c < kShare; ++c) sums.of[r * kShare + c] += left[r] * right[c];
      }
      __syncthreads();
    }
  }
  // body(row, column, sum) for the thread's elements
  template <typename Body>
  __device__ static void for_each(const Sums& sums, const Body& body) {
#pragma unroll
    for (int r = 0; r < kShare; ++r)
#pragma unroll
      for (int c = 0; c < kShare; ++c) body(row() + 16 * r, col() + 16 * c, sums.of[r * kShare + c]);
  }

 private:
  static constexpr int kStride = kTile + 1;  // without the last one, columns of the copy would lie in the same banks

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / 16; }
  __device__ __forceinline__ static int col() { return static_cast<int>(threadIdx.x) % 16; }
  // What does not exist is zero.
  template <Adjacent kAdjacent>
  __device__ static void copy(const Lines<T, kAdjacent>& from, T* to, int k, int end) {
#pragma unroll
    for (int step = 0; step < kTile * kDepth; step += kThreads) {
      const int place = step + static_cast<int>(threadIdx.x);
      const int line = kAdjacent == Adjacent::InALine ? place / kDepth : place % kTile;
      const int i = kAdjacent == Adjacent::InALine ? place % kDepth : place / kTile;
      to[i * kStride + line] = line < from.count && k + i < end ? *from.at(line, k + i) : T(0);
    }
  }

  Lines<T, kAdjacentA> a_;
  Lines<T, kAdjacentB> b_;
  T *a_shared_, *b_shared_;
};

// The same on tensor cores, by four warps with 32 x 32 sums each. While one step of K is multiplied, the next one is copied.
// Lines are copied as they lie; ldmatrix transposes them if they need it (tensor_core.cuh: g, t and who has which elements).
template <typename T, Adjacent kAdjacentA, Adjacent kAdjacentB>
class TensorCoreTile {
 public:
  static constexpr int kThreads = 128, kDepth = 32;
  static constexpr int kStageElements = kTile * (kDepth + 8);  // the larger of both forms
  static constexpr int kSharedBytes = 4 * kStageElements * static_cast<int>(sizeof(T));
  using Sum = float;
  struct Sums {
    float of[2][4][4];  // row tiles of 16, column tiles of 8
  };
  __device__ __forceinline__ static Sums sum_of(const Sums& left, Sums right) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) right.of[r][n][e] = left.of[r][n][e] + right.of[r][n][e];
    return right;
  }

  __device__ TensorCoreTile(Lines<T, kAdjacentA> a, Lines<T, kAdjacentB> b, unsigned char* shared)
      : a_(a), b_(b), shared_(reinterpret_cast<T*>(shared)) {}

  __device__ void add(Sums& sums, int begin, int end) {
    start_copies(0, begin, end);
    for (int k = begin, stage = 0; k < end; k += kDepth, stage ^= 1) {
      cp_async_wait<0>();
      __syncthreads();  // all copies have arrived, and nobody reads the other stage any more
      if (k + kDepth < end) start_copies(stage ^ 1, k + kDepth, end);
      multiply(sums, stage);
    }
    __syncthreads();
  }
  template <typename Body>
  __device__ static void for_each(const Sums& sums, const Body& body) {
    const int row = first_row() + lane() / 4, col = first_col() + lane() % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) body(row + 16 * r + e / 2 * 8, col + 8 * n + e % 2, sums.of[r][n][e]);
  }

 private:
  // Distances between lines, or between the elements of a line, that are free of bank conflicts.
  template <Adjacent kAdjacent>
  static constexpr int kStride = (kAdjacent == Adjacent::InALine ? kDepth : kTile) + 8;

  __device__ __forceinline__ static int lane() { return thread_index() % kWarp; }
  __device__ __forceinline__ static int first_row() { return thread_index() / kWarp / 2 * 32; }
  __device__ __forceinline__ static int first_col() { return thread_index() / kWarp % 2 * 32; }
  __device__ __forceinline__ T* stage_of_a(int stage) const { return shared_ + 2 * stage * kStageElements; }
  __device__ __forceinline__ T* stage_of_b(int stage) const { return stage_of_a(stage) + kStageElements; }

  __device__ void start_copies(int stage, int k, int end) {
    start_copy(a_, stage_of_a(stage), k, end);
    start_copy(b_, stage_of_b(stage), k, end);
    cp_async_commit();
  }
  // What does not exist is zero.
  template <Adjacent kAdjacent>
  __device__ static void start_copy(const Lines<T, kAdjacent>& from, T* to, int k, int end) {
    constexpr bool kInALine = kAdjacent == Adjacent::InALine;
    constexpr int kPacks = (kInALine ? kDepth : kTile) / 8;  // packs of 8 adjacent elements
#pragma unroll
    for (int step = 0; step < kTile * kDepth / 8; step += kThreads) {
      const int outer = (step + thread_index()) / kPacks, inner = (step + thread_index()) % kPacks * 8;
      const int line = kInALine ? outer : inner, i = kInALine ? inner : outer;
      const bool exists = line < from.count && k + i < end;
      const int valid = !exists ? 0 : min(8, kInALine ? end - k - i : from.count - line);
      copy_pack(exists ? from.at(line, k + i) : from.data, to + outer * kStride<kAdjacent> + inner, valid);
    }
  }
  __device__ static void copy_pack(const T* from, T* to, int valid) {
    if (valid == 0 || (valid == 8 && reinterpret_cast<uintptr_t>(from) % 16 == 0)) {
      if (valid == 8)
        cp_async_16(to, from, true);
      else
        *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = i < valid ? from[i] : narrow<T>(0.0f);
  }

  __device__ void multiply(Sums& sums, int stage) {
    const T *const a = stage_of_a(stage), *const b = stage_of_b(stage);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t left[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) load_rows(left[r], a, first_row() + 16 * r, k);
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        uint32_t right[4];  // two registers for column tile n, two for n + 1
        load_cols(right, b, first_col() + 8 * n, k);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          mma_m16n8k16<T>(sums.of[r][n], left[r], right[0], right[1]);
          mma_m16n8k16<T>(sums.of[r][n + 1], left[r], right[2], right[3]);
        }
      }
    }
  }
  // A matrix A of rows [row, row + 16).
  __device__ static void load_rows(uint32_t (&to)[4], const T* a, int row, int k) {
    constexpr int kStep = kStride<kAdjacentA>;
    if constexpr (kAdjacentA == Adjacent::InALine)
      ldmatrix_x4(to, a + (row + lane() % 16) * kStep + k + lane() / 16 * 8);
    else
      ldmatrix_x4_trans(to, a + (k + lane() % 8 + lane() / 16 * 8) * kStep + row + lane() / 8 % 2 * 8);
  }
  // Two matrices B of columns [col, col + 8) and [col + 8, col + 16).
  __device__ static void load_cols(uint32_t (&to)[4], const T* b, int col, int k) {
    constexpr int kStep = kStride<kAdjacentB>;
    if constexpr (kAdjacentB == Adjacent::InALine)
      ldmatrix_x4(to, b + (col + lane() % 8 + lane() / 16 * 8) * kStep + k + lane() / 8 % 2 * 8);
    else
      ldmatrix_x4_trans(to, b + (k + lane() % 16) * kStep + col + lane() / 16 * 8);
  }

  Lines<T, kAdjacentA> a_;
  Lines<T, kAdjacentB> b_;
  T* shared_;
};

template <typename T, Adjacent kAdjacentA, Adjacent kAdjacentB>
using TileOf =
    std::conditional_t<sizeof(T) == 2, TensorCoreTile<T, kAdjacentA, kAdjacentB>, OrdinaryTile<T, kAdjacentA, kAdjacentB>>;

// The leaves of a sum over K that the host knows. K of all elements of out is the same.
struct KnownLeaves {
  static constexpr int kMostRanges = 256;
  struct Range {
    int begin, end;
  };
  int leaves = 0;
  int range_ends[1 << (kLevels - 1)];  // by leaf
  Range ranges[kMostRanges];

  __device__ __forceinline__ int count() const { return leaves; }
  // body(begin, end) for the ranges of a leaf
  template <typename Body>
  __device__ __forceinline__ void for_each(int leaf, const Body& body) const {
    for (int r = leaf == 0 ? 0 : range_ends[leaf - 1]; r < range_ends[leaf]; ++r) body(ranges[r].begin, ranges[r].end);
  }
};

// The leaves of a sum over the rows of an expert.
struct RowLeaves {
  const int32_t* ends;  // ends of the expert's ranges
  int begin, leaves, of_leaf;

  __device__ __forceinline__ int count() const { return leaves; }
  template <typename Body>
  __device__ __forceinline__ void for_each(int leaf, const Body& body) const {
    for (int r = leaf * of_leaf; r < (leaf + 1) * of_leaf; ++r) body(r == 0 ? begin : ends[r - 1], ends[r]);
  }
};

// Sums the leaves of a tile into `sums`: each over its ranges in their order, then all in a balanced tree. Returns false if
// they have no elements. kTree: there are several leaves.
template <bool kTree, typename Tile, typename Leaves>
__device__ bool sum_leaves(Tile& tile, const Leaves& leaves, typename Tile::Sums& sums) {
  typename Tile::Sums pending[kTree ? kLevels : 1];  // sums of complete subtrees that wait for the one after them
  unsigned has_pending = 0;
  bool any = false;
  for (int leaf = 0; leaf < (kTree ? leaves.count() : 1); ++leaf) {
    sums = {};
    any = false;
    leaves.for_each(leaf, [&](int begin, int end) {
      if (begin == end) return;
      tile.add(sums, begin, end);
      any = true;
    });
    if constexpr (kTree) {
      int level = 0;
      for (; leaf >> level & 1; ++level) {
        if ((has_pending >> level & 1) == 0) continue;
        sums = any ? Tile::sum_of(pending[level], sums) : pending[level];
        any = true;
      }
      pending[level] = sums;
      has_pending = (has_pending & ~(1u << level)) | (any ? 1u << level : 0u);
    }
  }
  return any;
}

// A tile of out, of the type of a and b or float32.
struct Out {
  void* data;
  int64_t stride;
  bool is_wide, accumulate;
};

template <typename T, typename Sum>
__device__ __forceinline__ void store(const Out& out, int64_t place, Sum sum) {
  const auto put = [&]<typename To>(To* to) { *to = narrow<To>(out.accumulate ? widen(*to) + sum : sum); };
  if (sizeof(T) == 2 && out.is_wide)
    put(static_cast<float*>(out.data) + place);
  else
    put(static_cast<T*>(out.data) + place);
}

// Which rows a block computes, and with which expert's matrix.
struct RowTile {
  int expert, first, rows;
};

// Finds tile `tile` of the rows of all experts; `rows` is 0 if there are not so many tiles.
template <int kThreads>
__device__ RowTile find_row_tile(const int32_t* ends, int experts, int64_t ranges, int tile) {
  __shared__ RowTile found;
  if (threadIdx.x == 0) found = {0, 0, 0};
  int before = 0;
  for (int first = 0; first < experts && before <= tile; first += kThreads) {
    const int expert = first + static_cast<int>(threadIdx.x);
    const int begin = expert == 0 || expert >= experts ? 0 : ends[expert * ranges - 1];
    const int rows = expert >= experts ? 0 : ends[(expert + 1) * ranges - 1] - begin;
    const int tiles = (rows + kTile - 1) / kTile;
    const Prefix prefix = prefix_of_block<kThreads>(tiles);
    const int own = tile - before - prefix.before;
    if (own >= 0 && own < tiles) found = {expert, begin + own * kTile, min(kTile, rows - own * kTile)};
    before += prefix.all;
  }
  __syncthreads();
  return found;
}

template <typename T>
struct GroupedMatmulArguments {
  const T *a, *b;
  const int32_t* ends;
  int experts;
  int64_t ranges, n, k;
  Out out;
};

template <typename T, Adjacent kAdjacentB, bool kTree>
__global__ void __launch_bounds__(TileOf<T, Adjacent::InALine, kAdjacentB>::kThreads)
    grouped_matmul(GroupedMatmulArguments<T> args, const __grid_constant__ KnownLeaves leaves) {
  using Tile = TileOf<T, Adjacent::InALine, kAdjacentB>;
  TRIVET_DYNAMIC_SHARED(unsigned char, shared);
  const RowTile rows = find_row_tile<Tile::kThreads>(args.ends, args.experts, args.ranges, static_cast<int>(blockIdx.x));
  if (rows.rows == 0) return;
  const int64_t col = int64_t{blockIdx.y} * kTile;
  const Lines<T, Adjacent::InALine> a{args.a + rows.first * args.k, args.k, rows.rows};
  const auto b = lines_from<T, kAdjacentB>(args.b + rows.expert * args.n * args.k,
                                           kAdjacentB == Adjacent::InALine ? args.k : args.n, col, args.n);
  Tile tile(a, b, shared);
  typename Tile::Sums sums{};
  sum_leaves<kTree>(tile, leaves, sums);
  Tile::for_each(sums, [&](int r, int c, typename Tile::Sum sum) {
    if (r < a.count && c < b.count) store<T>(args.out, (rows.first + r) * args.out.stride + col + c, sum);
  });
}

template <typename T>
struct GroupedGradientArguments {
  const T *a, *b;
  const int32_t* ends;
  int64_t ranges;
  int leaves;
  int64_t m, n;
  Out out;
};

template <typename T, bool kTree>
__global__ void __launch_bounds__(TileOf<T, Adjacent::AcrossLines, Adjacent::AcrossLines>::kThreads)
    grouped_gradient(GroupedGradientArguments<T> args) {
  using Tile = TileOf<T, Adjacent::AcrossLines, Adjacent::AcrossLines>;
  TRIVET_DYNAMIC_SHARED(unsigned char, shared);
  const int64_t row = int64_t{blockIdx.y} * kTile, col = int64_t{blockIdx.x} * kTile, expert = blockIdx.z;
  const int32_t* const ends = args.ends + expert * args.ranges;
  const RowLeaves leaves{ends, expert == 0 ? 0 : ends[-1], args.leaves, static_cast<int>(args.ranges / args.leaves)};
  const auto a = lines_from<T, Adjacent::AcrossLines>(args.a, args.m, row, args.m);
  const auto b = lines_from<T, Adjacent::AcrossLines>(args.b, args.n, col, args.n);
  Tile tile(a, b, shared);
  typename Tile::Sums sums{};
  const bool any = sum_leaves<kTree>(tile, leaves, sums);
  if (!any && args.out.accumulate) return;
  Tile::for_each(sums, [&](int r, int c, typename Tile::Sum sum) {
    if (r < a.count && c < b.count) store<T>(args.out, (expert * args.m + row + r) * args.out.stride + col + c, sum);
  });
}

KnownLeaves known_leaves(const ProductCuts* cuts, int64_t k) {
  KnownLeaves known;
  int ranges = 0;
  const auto add = [&](int64_t begin, int64_t end) {
    if (ranges == KnownLeaves::kMostRanges) throw std::logic_error("grouped_matmul: at most 256 ranges of leaves on a GPU");
    known.ranges[ranges++] = {static_cast<int>(begin), static_cast<int>(end)};
  };
  if (!cuts || cuts->leaves.empty()) {
    add(0, k);
    known.range_ends[known.leaves++] = ranges;
    return known;
  }
  if (cuts->leaves.size() > std::size(known.range_ends)) throw std::logic_error("grouped_matmul: at most 64 leaves on a GPU");
  for (const auto& leaf : cuts->leaves) {
    for (const ProductCuts::Range& range : leaf) add(range.begin, range.end);
    known.range_ends[known.leaves++] = ranges;
  }
  return known;
}

unsigned tiles_of(int64_t size) { return static_cast<unsigned>((size + kTile - 1) / kTile); }

template <typename Body>
void dispatch_bool(bool value, const Body& body) {
  value ? body.template operator()<true>() : body.template operator()<false>();
}

}  // namespace

void compute(const GroupedMatmul& args, const Launch& launch) {
  const int64_t rows = args.out.shape[0], n = args.out.shape[1], k = args.a.shape[1], experts = args.b.shape[0];
  if (rows == 0 || n == 0) return;
  const KnownLeaves leaves = known_leaves(args.cuts, k);
  // Each expert has at most one tile that is not full.
  const dim3 grid(static_cast<unsigned>(rows / kTile + experts), tiles_of(n));
  dispatch_device_float(args.a.dtype, [&]<typename T>() {
    const GroupedMatmulArguments<T> arguments{data_of<T>(args.a),
                                              data_of<T>(args.b),
                                              data_of<int32_t>(args.ends),
                                              static_cast<int>(experts),
                                              args.ends.shape[1],
                                              n,
                                              k,
                                              {args.out.data, n, args.out.dtype != args.a.dtype, args.accumulate}};
    dispatch_bool(args.transpose_b, [&]<bool kTransposed>() {
      dispatch_bool(leaves.leaves > 1, [&]<bool kTree>() {
        constexpr Adjacent kAdjacentB = kTransposed ? Adjacent::InALine : Adjacent::AcrossLines;
        using Tile = TileOf<T, Adjacent::InALine, kAdjacentB>;
        TRIVET_LAUNCH((grouped_matmul<T, kAdjacentB, kTree>), grid, Tile::kThreads, Tile::kSharedBytes, launch.stream,
                      arguments, leaves);
      });
    });
  });
}

void compute(const GroupedGradient& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  if (args.leaves > 1 << (kLevels - 1)) throw std::logic_error("grouped_gradient: at most 64 leaves on a GPU");
  const int64_t m = args.out.shape[1], n = args.out.shape[2];
  const dim3 grid(tiles_of(n), tiles_of(m), static_cast<unsigned>(args.out.shape[0]));
  dispatch_device_float(args.a.dtype, [&]<typename T>() {
    const GroupedGradientArguments<T> arguments{data_of<T>(args.a),
                                                data_of<T>(args.b),
                                                data_of<int32_t>(args.ends),
                                                args.ends.shape[1],
                                                static_cast<int>(args.leaves),
                                                m,
                                                n,
                                                {args.out.data, n, args.out.dtype != args.a.dtype, args.accumulate}};
    dispatch_bool(args.leaves > 1, [&]<bool kTree>() {
      using Tile = TileOf<T, Adjacent::AcrossLines, Adjacent::AcrossLines>;
      TRIVET_LAUNCH((grouped_gradient<T, kTree>), grid, Tile::kThreads, Tile::kSharedBytes, launch.stream, arguments);
    });
  });
}

}  // namespace trivet::kernels::cuda
