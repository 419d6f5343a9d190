// Gradients of a table's rows. Each is the sum of its tokens' rows of dy, in token order. The time depends on the number of
// tokens, and little on how they are spread over the vocabulary:
//
//   count_tokens    counts[row], and each token's slot within its row, in the order in which the atomics happen to run
//   place_rows      starts[row] of its list in `places`; used rows go to `few` or, with more than 32 tokens, to `many`
//   place_tokens    places[start + slot] = token: each list has the right tokens, in any order
//   sum_few         one warp per row: sorts the list among its lanes and adds the rows of dy in that order
//   sort_many       one block per row: sorts the list into `sorted`, through a bitmap of tokens
//   sum_many        one block per kColumns columns of a row: all fetch rows into shared memory, one thread per column adds
//
// The atomics leave open the order within lists, which is sorted before rows are added, and the order among rows, which does
// not matter. So the sums equal the CPU's bit for bit.
#include <string>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/workspace.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFew = kWarp;  // tokens of a row that a warp can sort in registers

enum Cursor { kPlaced, kFewRows, kManyRows };

// EmbeddingScratch as pointers.
struct Lists {
  int32_t *cursors, *counts, *starts, *slots, *places, *sorted, *few, *many;

  Lists(const EmbeddingScratch& offsets, void* workspace) {
    const auto at = [workspace](int64_t offset) {
      return reinterpret_cast<int32_t*>(static_cast<std::byte*>(workspace) + offset);
    };
    cursors = at(offsets.cursors), counts = at(offsets.counts), starts = at(offsets.starts), slots = at(offsets.slots);
    places = at(offsets.places), sorted = at(offsets.sorted), few = at(offsets.few), many = at(offsets.many);
  }
};

struct Tokens {
  const int32_t* ids;
  int count, rows;  // rows: in this part of the table
  int64_t first_row;

  // The token's row in this part of the table, or -1 if another part has it.
  __device__ int row_of(int token) const {
    const int64_t row = ids[token] - first_row;
    return row >= 0 && row < rows ? static_cast<int>(row) : -1;
  }
};

__device__ __forceinline__ int thread_in_block() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int thread_in_grid() { return static_cast<int>(blockIdx.x * kThreads + threadIdx.x); }
__device__ __forceinline__ int threads_of_grid() { return static_cast<int>(gridDim.x * kThreads); }

__global__ void __launch_bounds__(kThreads) count_tokens(Tokens tokens, Lists lists) {
  for (int t = thread_in_grid(); t < tokens.count; t += threads_of_grid())
    if (const int row = tokens.row_of(t); row >= 0) lists.slots[t] = atomicAdd(lists.counts + row, 1);
}

// Takes `value` places from a cursor for each thread of the block, with one atomic.
__device__ int take(int32_t* cursor, int value) {
  __shared__ int first;
  const Prefix prefix = prefix_of_block<kThreads>(value);
  if (threadIdx.x == 0) first = prefix.all == 0 ? 0 : atomicAdd(cursor, prefix.all);
  __syncthreads();
  return first + prefix.before;
}

__global__ void __launch_bounds__(kThreads) place_rows(int rows, Lists lists) {
  const int row = thread_in_grid();
  const int count = row < rows ? lists.counts[row] : 0;
  const int start = take(lists.cursors + kPlaced, count);
  const int few = take(lists.cursors + kFewRows, count > 0 && count <= kFew ? 1 : 0);
  const int many = take(lists.cursors + kManyRows, count > kFew ? 1 : 0);
  if (count == 0) return;
  lists.starts[row] = start;
  if (count <= kFew)
    lists.few[few] = row;
  else
    lists.many[many] = row;
}

__global__ void __launch_bounds__(kThreads) place_tokens(Tokens tokens, Lists lists) {
  for (int t = thread_in_grid(); t < tokens.count; t += threads_of_grid())
    if (const int row = tokens.row_of(t); row >= 0) lists.places[lists.starts[row] + lists.slots[t]] = t;
}

template <typename T, typename G>
struct Table {
  const T* dy;
  G* dtable;
  int64_t hidden;
  bool accumulate;

  template <int N>
  __device__ __forceinline__ void store(int64_t row, int64_t col, const SumOf<T> (&sums)[N]) const {
    G* const to = dtable + row * hidden + col;
    Pack<G, N> result;
    if (accumulate) result = load_pack<N>(static_cast<const G*>(to));
#pragma unroll
    for (int i = 0; i < N; ++i) result[i] = narrow<G>(accumulate ? static_cast<SumOf<T>>(widen(result[i])) + sums[i] : sums[i]);
    store_pack(to, result);
  }
};

// Sorts the tokens of a warp: the smaller a token, the lower the lane that gets it.
__device__ __forceinline__ int sort_in_warp(int token, int count, int lane) {
  int rank = 0;
  for (int other = 0; other < count; ++other) rank += __shfl_sync(kAllLanes, token, other) < token ? 1 : 0;
  int sorted = 0;
  for (int other = 0; other < count; ++other) {
    const int theirs = __shfl_sync(kAllLanes, token, other), place = __shfl_sync(kAllLanes, rank, other);
    if (place == lane) sorted = theirs;
  }
  return sorted;
}

template <typename T, int N>
__device__ __forceinline__ void add_to(SumOf<T> (&sums)[N], const Pack<T, N>& pack) {
#pragma unroll
  for (int i = 0; i < N; ++i) sums[i] += widen(pack[i]);
}

template <typename T, typename G, int kPack>
__global__ void __launch_bounds__(kThreads, 2) sum_few(Table<T, G> table, Lists lists) {
  constexpr int kUnroll = 4;
  const int lane = thread_in_block() % kWarp;
  const int used = lists.cursors[kFewRows];
  for (int i = thread_in_grid() / kWarp; i < used; i += threads_of_grid() / kWarp) {
    const int row = lists.few[i], count = lists.counts[row];
    const int token = sort_in_warp(lane < count ? lists.places[lists.starts[row] + lane] : 0, count, lane);
    for (int64_t first = 0; first < table.hidden; first += kWarp * kPack) {  // lanes stay together for the shuffles
      const int64_t col = first + lane * kPack;
      const bool inside = col < table.hidden;
      const T* const from = table.dy + (inside ? col : 0);  // lanes outside read too, and store nothing
      SumOf<T> sums[kPack] = {};
      int begin = 0;
      for (; begin + kUnroll <= count; begin += kUnroll) {
        Pack<T, kPack> dy[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
          dy[u] = load_pack<kPack>(from + __shfl_sync(kAllLanes, token, begin + u) * table.hidden);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) add_to(sums, dy[u]);
      }
      for (; begin < count; ++begin) add_to(sums, load_pack<kPack>(from + __shfl_sync(kAllLanes, token, begin) * table.hidden));
      if (inside) table.store(row, col, sums);
    }
  }
}

constexpr int kWindow = kThreads * 32;  // tokens in a bitmap with one word per thread

__global__ void __launch_bounds__(kThreads) sort_many(int tokens, Lists lists) {
  __shared__ uint32_t bits[kThreads];
  const int thread = thread_in_block(), used = lists.cursors[kManyRows];
  for (int i = static_cast<int>(blockIdx.x); i < used; i += static_cast<int>(gridDim.x)) {
    const int row = lists.many[i], start = lists.starts[row], count = lists.counts[row];
    int written = 0;
    for (int window = 0; window < tokens && written < count; window += kWindow) {
      bits[thread] = 0;
      __syncthreads();
      for (int p = thread; p < count; p += kThreads) {
        const int place = lists.places[start + p] - window;
        if (place >= 0 && place < kWindow) atomicOr(bits + place / 32, 1u << (place % 32));
      }
      __syncthreads();
      uint32_t mine = bits[thread];
      const Prefix prefix = prefix_of_block<kThreads>(__popc(mine));
      int32_t* to = lists.sorted + start + written + prefix.before;
      for (; mine != 0; mine &= mine - 1) *to++ = window + thread * 32 + __ffs(static_cast<int>(mine)) - 1;
      written += prefix.all;
    }
  }
}

constexpr int kColumns = 64;
template <typename T>
constexpr int kTile = 32768 / (kColumns * static_cast<int>(sizeof(T)));  // rows of dy in shared memory

template <typename T, typename G, int kPack>
__global__ void __launch_bounds__(kThreads, 2) sum_many(Table<T, G> table, Lists lists) {
  constexpr int kPacks = kColumns / kPack;
  __shared__ Pack<T, kPack> tile[kTile<T>][kPacks];
  const int thread = thread_in_block(), used = lists.cursors[kManyRows];
  const int64_t first_col = int64_t{blockIdx.y} * kColumns;
  const bool adds = thread < kColumns && first_col + thread < table.hidden;
  for (int i = static_cast<int>(blockIdx.x); i < used; i += static_cast<int>(gridDim.x)) {
    const int row = lists.many[i], count = lists.counts[row];
    const int32_t* tokens = lists.sorted + lists.starts[row];
    SumOf<T> sum[1] = {};
    for (int begin = 0; begin < count; begin += kTile<T>) {
      const int here = min(kTile<T>, count - begin);
#pragma unroll 8
      for (int place = thread; place < here * kPacks; place += kThreads) {
        const int of_tile = place / kPacks, pack = place % kPacks;
        const int64_t col = first_col + pack * kPack;
        if (col < table.hidden) tile[of_tile][pack] = load_pack<kPack>(table.dy + tokens[begin + of_tile] * table.hidden + col);
      }
      __syncthreads();
      if (adds)
        for (int of_tile = 0; of_tile < here; ++of_tile) sum[0] += widen(tile[of_tile][thread / kPack][thread % kPack]);
      __syncthreads();
    }
    if (adds) table.store(row, first_col + thread, sum);
  }
}

void make_lists(const Tokens& tokens, const EmbeddingScratch& scratch, const Lists& lists, const Launch& launch) {
  // Cursors and counts are adjacent in memory.
  CUDA_CHECK(cudaMemsetAsync(lists.cursors, 0, static_cast<size_t>(scratch.starts - scratch.cursors), launch.stream));
  const unsigned blocks = grid_blocks((tokens.count + kThreads - 1) / kThreads, launch);
  TRIVET_LAUNCH(count_tokens, blocks, kThreads, 0, launch.stream, tokens, lists);
  TRIVET_LAUNCH(place_rows, static_cast<unsigned>((tokens.rows + kThreads - 1) / kThreads), kThreads, 0, launch.stream,
                tokens.rows, lists);
  TRIVET_LAUNCH(place_tokens, blocks, kThreads, 0, launch.stream, tokens, lists);
}

void table_gradient(const EmbeddingBackward& args, const Launch& launch) {
  if (!args.accumulate_table) compute(Zero{args.dtable}, launch);
  const int64_t count = args.tokens.elements(), rows = args.dtable.shape[0], hidden = args.dy.shape.cols();
  if (count == 0 || rows == 0 || hidden == 0) return;
  if (std::max(count, rows) > INT32_MAX / 2)
    throw std::logic_error("embedding_backward: " + std::to_string(count) + " tokens and " + std::to_string(rows) +
                           " rows of a table; on CUDA each must be less than 2^30");
  const EmbeddingScratch scratch(count, rows);
  const Lists lists(scratch, launch.workspace.data);
  make_lists({data_of<int32_t>(args.tokens), static_cast<int>(count), static_cast<int>(rows), args.rows.first}, scratch, lists,
             launch);
  // Only the device knows how many rows are used, so the grids are made for the largest possible number.
  const int64_t warps = std::min(count, rows), many = std::min(count / (kFew + 1), rows);
  const unsigned few_blocks = grid_blocks((warps * kWarp + kThreads - 1) / kThreads, launch);
  dispatch_gradient(args.dy.dtype, args.dtable.dtype, [&]<typename T, typename G>() {
    constexpr int kPack = kPackOf<T, G>;
    const Table<T, G> table{data_of<T>(args.dy), data_of<G>(args.dtable), hidden, args.accumulate_table};
    const bool whole = hidden % kPack == 0 && aligned_for_packs<kPack>(table.dy) && aligned_for_packs<kPack>(table.dtable);
    TRIVET_LAUNCH((whole ? &sum_few<T, G, kPack> : &sum_few<T, G, 1>), few_blocks, kThreads, 0, launch.stream, table, lists);
    if (many == 0) return;
    const auto many_blocks = static_cast<unsigned>(std::min<int64_t>(many, launch.multiprocessors));
    TRIVET_LAUNCH(sort_many, many_blocks, kThreads, 0, launch.stream, static_cast<int>(count), lists);
    const dim3 grid(many_blocks, static_cast<unsigned>((hidden + kColumns - 1) / kColumns));
    TRIVET_LAUNCH((whole ? &sum_many<T, G, kPack> : &sum_many<T, G, 1>), grid, kThreads, 0, launch.stream, table, lists);
  });
}

// dpositions[s] (+)= sum over b of dy[b, s]
template <typename T, typename G>
struct SumOverSequences {
  Table<T, G> gradient;
  int64_t sequences, positions;
  template <int N>
  struct Loaded {
    SumOf<T> sums[N];
  };
  template <int N>
  __device__ Loaded<N> load(int64_t position, int64_t col) const {
    Loaded<N> loaded{};
#pragma unroll 2
    for (int64_t b = 0; b < sequences; ++b) {
      add_to(loaded.sums, load_pack<N>(gradient.dy + (b * positions + position) * gradient.hidden + col));
    }
    return loaded;
  }
  template <int N>
  __device__ void finish(int64_t position, int64_t col, const Loaded<N>& loaded) const {
    gradient.store(position, col, loaded.sums);
  }
};

void position_gradient(const EmbeddingBackward& args, const Launch& launch) {
  if (!args.accumulate_positions) compute(Zero{args.dpositions}, launch);
  dispatch_gradient(args.dy.dtype, args.dpositions.dtype, [&]<typename T, typename G>() {
    constexpr int kPack = kPackOf<T, G>;
    const Table<T, G> gradient{data_of<T>(args.dy), data_of<G>(args.dpositions), args.dy.shape.cols(),
                               args.accumulate_positions};
    const SumOverSequences<T, G> op{gradient, args.tokens.shape[0], args.tokens.shape[1]};
    const bool aligned = aligned_for_packs<kPack>(gradient.dy) && aligned_for_packs<kPack>(gradient.dtable);
    launch_rows<kPack, 1>(op, op.positions, gradient.hidden, aligned, launch);
  });
}

}  // namespace

void compute(const EmbeddingBackward& args, const Launch& launch) {
  if (!args.dtable.absent()) table_gradient(args, launch);
  if (!args.dpositions.absent()) position_gradient(args, launch);
}

}  // namespace trivet::kernels::cuda
