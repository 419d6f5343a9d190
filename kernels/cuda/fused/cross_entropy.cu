// Softmax cross-entropy, with one block per row. The row is read once, with a running maximum and sum, and kept in shared
// memory if two such rows fit on a multiprocessor. A longer row is read again for its gradient, mostly from the second-level
// cache; to make that possible, few blocks run at a time.
#include <string>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/fused/logits.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/workspace.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int64_t kStagedBytes = 110 * 1024;  // twice this, plus the blocks' other shared memory, fits in the 228 KiB of sm_90

template <typename T>
constexpr int kBlocksAtATime = sizeof(T) == 8 ? 1 : 2;  // per multiprocessor; registers are the limit

// The combinations of types that models use; other combinations move one element at a time.
template <typename T, typename Out>
constexpr bool kUsual = std::is_same_v<T, Out> || (sizeof(T) == 4 && sizeof(Out) == 2);
template <typename T, typename Out>
constexpr int kLogitPack = kUsual<T, Out> ? kPackOf<T, Out> : 1;

template <typename T, typename Out>
struct Rows {
  const T* logits;
  const int32_t* targets;
  Out* dlogits;    // may be null
  double* losses;  // each row's loss; may be null
  int64_t rows;
  int cols;
  int64_t first_col, vocabulary;
  Number gradient_scale;
  SumOf<T> soft_cap;              // 0: none
  const double* factors;          // factors for the gradients of rows; may be null
  const SumOf<T>*maximum, *sums;  // for whole rows, if they are known
  LogitChunks chunks;
};

// Statistics of a row that must be known before its gradient is computed.
template <typename Sum>
struct Statistics {
  Sum maximum;
  double total;  // sum of exponentials
  Sum target_logit;
};

template <typename T, typename Out>
__device__ double scale_of(const Rows<T, Out>& a, int64_t row) {
  const double scale = read(a.gradient_scale);
  return a.factors == nullptr ? scale : scale * a.factors[row];
}

template <typename Sum>
__device__ double loss_of(const Statistics<Sum>& row) {
  return log(row.total) + static_cast<double>(row.maximum) - static_cast<double>(row.target_logit);
}

// The derivative of a soft cap by its argument, from its result.
template <typename Sum>
__device__ __forceinline__ Sum slope_of_cap(Sum logit, Sum soft_cap) {
  if (soft_cap == 0) return Sum(1);
  const Sum share = logit / soft_cap;
  return Sum(1) - share * share;
}

// Values that determine a row's gradient, apart from its logits and statistics. target: a column of this part.
template <typename Sum>
struct GradientOfRow {
  double scale;
  Sum soft_cap;
  int64_t target;
};

// `load` reads the logits again. dlogits may be logits: a thread overwrites only elements that it has read itself.
template <typename T, typename Out, int kPack, typename Load>
__device__ __forceinline__ void write_gradient(const LogitWalk<T, kPack>& walk, const Load& load,
                                               const Statistics<SumOf<T>>& row, const GradientOfRow<SumOf<T>>& of_row, int cols,
                                               Out* dlogits) {
  using Sum = SumOf<T>;
  const Sum factor = static_cast<Sum>(of_row.scale / row.total);
  walk.for_each(load, [&]<int N>(int col, const Pack<T, N>& x) {
    Pack<Out, N> gradient;
#pragma unroll
    for (int i = 0; i < N; ++i)
      gradient[i] = narrow<Out>(power_of_e(widen(x[i]) - row.maximum) * factor * slope_of_cap(widen(x[i]), of_row.soft_cap));
    store_pack(dlogits + col, gradient);
  });
  const int64_t target = of_row.target;
  if (target < 0 || target >= cols || !walk.mine(static_cast<int>(target))) return;
  const double probability = static_cast<double>(power_of_e(row.target_logit - row.maximum)) / row.total;
  const double slope = static_cast<double>(slope_of_cap(row.target_logit, of_row.soft_cap));
  dlogits[target] = narrow<Out>(static_cast<Sum>((probability - 1.0) * of_row.scale * slope));
}

template <typename T, typename Out, int kPack>
__device__ void fill_row(const LogitWalk<T, kPack>& walk, Out value, Out* dlogits) {
  walk.for_each([&]<int N>(int) { return 0; },
                [&]<int N>(int col, int) {
                  Pack<Out, N> filled;
#pragma unroll
                  for (int i = 0; i < N; ++i) filled[i] = value;
                  store_pack(dlogits + col, filled);
                });
}

// Handles a row whose target does not count (zeros) or is not a column at all (NaN). Returns whether it is such a row.
template <typename T, typename Out, int kPack>
__device__ bool no_target(const Rows<T, Out>& a, const LogitWalk<T, kPack>& walk, int64_t row, int64_t target, Out* drow) {
  if (target >= 0 && target < a.vocabulary) return false;
  const float value = target < 0 ? 0.0f : NAN;
  if (drow != nullptr) fill_row<T, Out, kPack>(walk, narrow<Out>(value), drow);
  if (threadIdx.x == 0 && a.losses != nullptr) a.losses[row] = static_cast<double>(value);
  return true;
}

template <typename T, typename Out, int kPack, bool kStaged>
__global__ void __launch_bounds__(kLogitThreads, kStaged ? kBlocksAtATime<T> : 1) whole_rows(Rows<T, Out> a) {
  using Sum = SumOf<T>;
  TRIVET_DYNAMIC_SHARED(T, kept);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* const logits = a.logits + row * a.cols;
    const int64_t target = a.targets[row];
    Out* const drow = a.dlogits == nullptr ? nullptr : a.dlogits + row * a.cols;
    const LogitWalk<T, kPack> walk(logits, a.cols);
    if (no_target<T, Out, kPack>(a, walk, row, target, drow)) continue;
    T* const copy = kept + kPack - walk.head();  // so that packs start at multiples of their size
    Statistics<Sum> statistics{0, 0, widen(logits[target])};
    RunningSum<Sum> running;
    walk.for_each([&]<int N>(int col) { return load_pack<N>(logits + col); },
                  [&]<int N>(int col, const Pack<T, N>& x) {
                    running.add(x);
                    if constexpr (kStaged) store_pack(copy + col, x);
                  });
    statistics.total = running.join();
    statistics.maximum = running.maximum;
    if (a.chunks.count > 0) statistics.total = static_cast<double>(sum_of_chunks(logits, statistics.maximum, a.chunks));
    if (threadIdx.x == 0 && a.losses != nullptr) a.losses[row] = loss_of(statistics);
    if (drow == nullptr) continue;
    const T* const again = kStaged ? copy : logits;
    write_gradient<T, Out, kPack>(
        walk, [&]<int N>(int col) { return load_pack<N>(again + col); }, statistics, {scale_of(a, row), a.soft_cap, target},
        a.cols, drow);
  }
}

// Parts of rows; the statistics of the whole rows are known.
template <typename T, typename Out, int kPack>
__global__ void __launch_bounds__(kLogitThreads, 1) part_rows(Rows<T, Out> a) {
  using Sum = SumOf<T>;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* const logits = a.logits + row * a.cols;
    const int64_t target = a.targets[row];
    Out* const drow = a.dlogits == nullptr ? nullptr : a.dlogits + row * a.cols;
    const LogitWalk<T, kPack> walk(logits, a.cols);
    if (no_target<T, Out, kPack>(a, walk, row, target, drow)) continue;
    const Statistics<Sum> statistics{a.maximum[row], static_cast<double>(a.sums[row]), a.sums[a.rows + row]};
    if (threadIdx.x == 0 && a.losses != nullptr) a.losses[row] = loss_of(statistics);
    if (drow != nullptr)
      write_gradient<T, Out, kPack>(
          walk, [&]<int N>(int col) { return load_pack<N>(logits + col); }, statistics,
          {scale_of(a, row), a.soft_cap, target - a.first_col}, a.cols, drow);
  }
}

template <typename T, int kPack>
__global__ void __launch_bounds__(kLogitThreads) maxima(const T* logits, int64_t rows, int cols, SumOf<T>* maximum) {
  using Sum = SumOf<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const x = logits + row * cols;
    Sum highest = -static_cast<Sum>(INFINITY);
    LogitWalk<T, kPack>(x, cols).for_each([&]<int N>(int col) { return load_pack<N>(x + col); },
                                          [&]<int N>(int, const Pack<T, N>& pack) {
#pragma unroll
                                            for (int i = 0; i < N; ++i) highest = larger(highest, widen(pack[i]));
                                          });
    highest = join_group<kLogitThreads>(highest, Maximum());
    if (threadIdx.x == 0) maximum[row] = highest;
  }
}

template <typename T, int kPack>
__global__ void __launch_bounds__(kLogitThreads) sums_of_rows(Rows<T, T> a, SumOf<T>* sums) {
  using Sum = SumOf<T>;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* const x = a.logits + row * a.cols;
    const Sum maximum = a.maximum[row];
    Sum sum = 0;
    if (a.chunks.count > 0) {
      sum = sum_of_chunks(x, maximum, a.chunks);
    } else {
      Sum mine = 0;
      LogitWalk<T, kPack>(x, a.cols).for_each([&]<int N>(int col) { return load_pack<N>(x + col); },
                                              [&]<int N>(int, const Pack<T, N>& pack) {
#pragma unroll
                                                for (int i = 0; i < N; ++i) mine += power_of_e(widen(pack[i]) - maximum);
                                              });
      sum = static_cast<Sum>(join_group<kLogitThreads>(static_cast<double>(mine), Plus()));
    }
    if (threadIdx.x != 0) continue;
    const int64_t target = a.targets[row] - a.first_col;
    sums[row] = a.targets[row] < a.vocabulary ? sum : static_cast<Sum>(NAN);
    sums[a.rows + row] = target >= 0 && target < a.cols ? widen(x[target]) : Sum(0);
  }
}

// loss[0] += sum over rows, in an order that depends only on the number of rows; loss[1] += the number of rows that count.
__global__ void __launch_bounds__(kLogitThreads)
    add_rows(const double* losses, const int32_t* targets, int64_t rows, double* loss) {
  double sum = 0, counted = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kLogitThreads) {
    sum += losses[row];
    counted += targets[row] >= 0 ? 1 : 0;
  }
  sum = join_group<kLogitThreads>(sum, Plus());
  counted = join_group<kLogitThreads>(counted, Plus());
  if (threadIdx.x != 0) return;
  loss[0] += sum;
  loss[1] += counted;
}

LogitChunks chunks_of(std::span<const int64_t> ends) {
  if (ends.size() > LogitChunks::kMost)
    throw std::logic_error("cross_entropy: a row has " + std::to_string(ends.size()) + " chunks; on CUDA it may have at most " +
                           std::to_string(LogitChunks::kMost));
  LogitChunks chunks;
  chunks.count = static_cast<int>(ends.size());
  for (size_t c = 0; c < ends.size(); ++c) chunks.ends[c] = static_cast<int>(ends[c]);
  return chunks;
}

// Where the losses of rows go; null if nobody needs them.
template <typename Args>
double* losses_of_rows(const Args& args, const Launch& launch) {
  if (!args.row_losses.absent()) return data_of<double>(args.row_losses);
  return args.loss.absent() ? nullptr : static_cast<double*>(launch.workspace.data);
}

template <typename T, typename Out, typename Args>
Rows<T, Out> rows_of(const Args& args, const TableRows& columns, const Launch& launch) {
  Rows<T, Out> rows{};
  rows.logits = data_of<T>(args.logits);
  rows.targets = data_of<int32_t>(args.targets);
  rows.dlogits = data_of<Out>(args.dlogits);
  rows.losses = losses_of_rows(args, launch);
  rows.rows = args.logits.shape.rows();
  rows.cols = static_cast<int>(args.logits.shape.cols());
  rows.first_col = columns.first;
  rows.vocabulary = columns.vocabulary > 0 ? columns.vocabulary : rows.cols;
  rows.gradient_scale = args.gradient_scale;
  rows.soft_cap = static_cast<SumOf<T>>(args.soft_cap);
  rows.factors = data_of<double>(args.row_factors);
  return rows;
}

// Checks whether packs of logits and dlogits start at the same columns of all rows.
template <int kPack, typename T, typename Out>
bool packs_agree(const Rows<T, Out>& rows) {
  if (rows.cols % kPack == 0 && aligned_for_packs<kPack>(rows.logits) && aligned_for_packs<kPack>(rows.dlogits)) return true;
  const auto distance = reinterpret_cast<uintptr_t>(rows.dlogits) - reinterpret_cast<uintptr_t>(rows.logits);
  return rows.dlogits == nullptr || (sizeof(T) == sizeof(Out) && distance % kAccessBytes == 0);
}

unsigned blocks_for_rows(int64_t rows, int64_t row_bytes, const Launch& launch) {
  const int64_t at_a_time = row_bytes <= kStagedBytes ? 4 : 1;
  return static_cast<unsigned>(std::clamp<int64_t>(launch.multiprocessors * at_a_time, 1, rows));
}

// body.operator()<T, Out>() with the types of logits and dlogits.
template <typename Args, typename Body>
void dispatch_logits(const Args& args, const Body& body) {
  dispatch_device_float(args.logits.dtype, [&]<typename T>() {
    if (args.dlogits.absent() || args.dlogits.dtype == args.logits.dtype) return body.template operator()<T, T>();
    dispatch_device_float(args.dlogits.dtype, [&]<typename Out>() { body.template operator()<T, Out>(); });
  });
}

bool can_be_kept(int64_t row_bytes) {
  if (row_bytes > kStagedBytes) return false;
  int device = 0, most = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return row_bytes + 4096 <= most;  // plus the static shared memory
}

template <typename T, typename Out, int kPack>
void launch_whole_rows(const Rows<T, Out>& rows, const Launch& launch) {
  const int64_t row_bytes = (rows.cols + 2 * kPack) * static_cast<int64_t>(sizeof(T));
  const unsigned blocks = blocks_for_rows(rows.rows, row_bytes, launch);
  if constexpr (kPack > 1) {
    if (rows.dlogits != nullptr && can_be_kept(row_bytes)) {
      const auto kernel = &whole_rows<T, Out, kPack, true>;
      trivet::cuda::allow_dynamic_shared(kernel, static_cast<size_t>(row_bytes));
      TRIVET_LAUNCH(kernel, blocks, kLogitThreads, static_cast<size_t>(row_bytes), launch.stream, rows);
      return;
    }
  }
  TRIVET_LAUNCH((whole_rows<T, Out, kPack, false>), blocks, kLogitThreads, 0, launch.stream, rows);
}

template <typename Args>
void add_losses_of_rows(const Args& args, const Launch& launch) {
  if (args.loss.absent()) return;
  TRIVET_LAUNCH(&add_rows, 1, kLogitThreads, 0, launch.stream, static_cast<const double*>(losses_of_rows(args, launch)),
                data_of<int32_t>(args.targets), args.targets.elements(), data_of<double>(args.loss));
}

constexpr int kCountThreads = 256;

// One block; each thread walks through rows of its own. There are few rows, one for each image of a microbatch.
template <typename T>
__global__ void __launch_bounds__(kCountThreads)
    count_right_rows(const T* logits, const int32_t* targets, int64_t rows, int64_t cols, double* correct) {
  int64_t right = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kCountThreads) {
    const T* x = logits + row * cols;
    int64_t largest = 0;
    for (int64_t col = 1; col < cols; ++col)
      if (widen(x[largest]) < widen(x[col])) largest = col;
    right += targets[row] >= 0 && largest == targets[row] ? 1 : 0;
  }
  right = join_group<kCountThreads>(right, Plus());
  if (threadIdx.x == 0) *correct += static_cast<double>(right);
}

}  // namespace

void compute(const CountCorrect& args, const Launch& launch) {
  if (args.logits.elements() == 0) return;
  dispatch_device_float(args.logits.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&count_right_rows<T>, 1, kCountThreads, 0, launch.stream, data_of<T>(args.logits),
                  data_of<int32_t>(args.targets), args.logits.shape.rows(), args.logits.shape.cols(),
                  data_of<double>(args.correct));
  });
}

void compute(const CrossEntropy& args, const Launch& launch) {
  if (args.logits.elements() == 0) return;
  dispatch_logits(args, [&]<typename T, typename Out>() {
    constexpr int kPack = kLogitPack<T, Out>;
    Rows<T, Out> rows = rows_of<T, Out>(args, {}, launch);
    rows.chunks = chunks_of(args.chunk_ends);
    if (packs_agree<kPack>(rows))
      launch_whole_rows<T, Out, kPack>(rows, launch);
    else
      launch_whole_rows<T, Out, 1>(rows, launch);
  });
  add_losses_of_rows(args, launch);
}

void compute(const CrossEntropyOfPart& args, const Launch& launch) {
  if (args.targets.elements() == 0) return;
  dispatch_logits(args, [&]<typename T, typename Out>() {
    constexpr int kPack = kLogitPack<T, Out>;
    Rows<T, Out> rows = rows_of<T, Out>(args, args.columns, launch);
    rows.rows = args.targets.elements();
    rows.maximum = data_of<SumOf<T>>(args.maximum);
    rows.sums = data_of<SumOf<T>>(args.sums);
    const auto kernel = packs_agree<kPack>(rows) ? &part_rows<T, Out, kPack> : &part_rows<T, Out, 1>;
    TRIVET_LAUNCH(kernel, blocks_for_rows(rows.rows, 0, launch), kLogitThreads, 0, launch.stream, rows);
  });
  add_losses_of_rows(args, launch);
}

void compute(const RowMaxima& args, const Launch& launch) {
  const int64_t rows = args.maximum.elements();
  if (rows == 0) return;
  dispatch_device_float(args.logits.dtype, [&]<typename T>() {
    TRIVET_LAUNCH((maxima<T, kPackOf<T>>), blocks_for_rows(rows, 0, launch), kLogitThreads, 0, launch.stream,
                  data_of<T>(args.logits), rows, static_cast<int>(args.logits.shape.cols()), data_of<SumOf<T>>(args.maximum));
  });
}

void compute(const RowSums& args, const Launch& launch) {
  if (args.targets.elements() == 0) return;
  dispatch_device_float(args.logits.dtype, [&]<typename T>() {
    Rows<T, T> rows{};
    rows.logits = data_of<T>(args.logits);
    rows.targets = data_of<int32_t>(args.targets);
    rows.rows = args.targets.elements();
    rows.cols = static_cast<int>(args.logits.shape.cols());
    rows.first_col = args.columns.first;
    rows.vocabulary = args.columns.vocabulary > 0 ? args.columns.vocabulary : rows.cols;
    rows.maximum = data_of<SumOf<T>>(args.maximum);
    rows.chunks = chunks_of(args.chunk_ends);
    TRIVET_LAUNCH((sums_of_rows<T, kPackOf<T>>), blocks_for_rows(rows.rows, 0, launch), kLogitThreads, 0, launch.stream, rows,
                  data_of<SumOf<T>>(args.sums));
  });
}

}  // namespace trivet::kernels::cuda
