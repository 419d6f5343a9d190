// Gradients of parameters that are sums over rows: biases, and the gain and bias of norms. As on the CPU, chunks of kRowChunk
// rows are summed in row order and then the chunks in order, which gives the same bits.
//
//   sum_chunks: one thread per pack of columns of a chunk                  dy, x [T, H] -> sums [chunks, H] in the workspace
//   sum_of_chunks: one thread per column adds what others have fetched     sums [chunks, H] -> out [H]
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/workspace.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kChunksOfBlock = 4;

template <typename T>
struct Columns {
  const T *dy, *x;
  const SumOf<T>*mean, *rstd;  // a null mean counts as 0
  SumOf<T>*gain_sums, *bias_sums;
  int64_t rows, cols, chunks;
  // Each `cols_of_statistic` columns have statistics of their own, and a row of dy and x has `stride` elements.
  int64_t stride = cols, cols_of_statistic = cols;
};

template <typename T, bool kGain, bool kBias, int kPack>
__global__ void __launch_bounds__(kWarp* kChunksOfBlock, 4) sum_chunks(Columns<T> a) {
  using Sum = SumOf<T>;
  constexpr int kUnroll = kGain ? 8 : 16;  // loads in flight: as many as the registers of four blocks can hold
  const int64_t col = (int64_t{blockIdx.x} * kWarp + threadIdx.x) * kPack;
  if (col >= a.cols) return;
  const int64_t statistics = a.cols / a.cols_of_statistic, own = col / a.cols_of_statistic;
  for (int64_t chunk = int64_t{blockIdx.y} * kChunksOfBlock + threadIdx.y; chunk < a.chunks;
       chunk += int64_t{gridDim.y} * kChunksOfBlock) {
    const int64_t begin = chunk * kRowChunk, end = std::min(begin + kRowChunk, a.rows);
    [[maybe_unused]] Sum gain[kPack] = {}, bias[kPack] = {};
    const auto add_rows = [&]<int kRows>(int64_t row) {
      Pack<T, kPack> dy[kRows];
      [[maybe_unused]] Pack<T, kPack> x[kRows];
      [[maybe_unused]] Sum mean[kRows], rstd[kRows];
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        dy[u] = load_pack<kPack>(a.dy + (row + u) * a.stride + col);
        if constexpr (kGain) {
          x[u] = load_pack<kPack>(a.x + (row + u) * a.stride + col);
          const int64_t place = (row + u) * statistics + own;
          mean[u] = a.mean == nullptr ? Sum(0) : a.mean[place];
          rstd[u] = a.rstd[place];
        }
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          if constexpr (kGain) gain[i] += widen(dy[u][i]) * ((widen(x[u][i]) - mean[u]) * rstd[u]);
          if constexpr (kBias) bias[i] += widen(dy[u][i]);
        }
      }
    };
    int64_t row = begin;
    for (; row + kUnroll <= end; row += kUnroll) add_rows.template operator()<kUnroll>(row);
    for (; row < end; ++row) add_rows.template operator()<1>(row);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if constexpr (kGain) a.gain_sums[chunk * a.cols + col + i] = gain[i];
      if constexpr (kBias) a.bias_sums[chunk * a.cols + col + i] = bias[i];
    }
  }
}

constexpr int kFetchers = 32;

// The first warp adds a tile of chunks while all warps wait for the next one, of which each thread has all loads in flight.
template <typename Sum, typename G>
__global__ void __launch_bounds__(kWarp* kFetchers)
    sum_of_chunks(const Sum* sums, int64_t chunks, int64_t cols, G* out, bool accumulate) {
  constexpr int kTile = 32768 / (kWarp * static_cast<int>(sizeof(Sum)));  // chunks in shared memory at a time
  constexpr int kFetched = kTile / kFetchers;                             // by a thread
  __shared__ Sum tile[kTile][kWarp];
  const int64_t col = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  Sum fetched[kFetched];
  const auto fetch = [&](int64_t first) {
#pragma unroll
    for (int i = 0; i < kFetched; ++i) {
      const int64_t chunk = first + i * kFetchers + threadIdx.y;
      fetched[i] = col < cols && chunk < chunks ? sums[chunk * cols + col] : Sum(0);
    }
  };
  fetch(0);
  Sum total = 0;
  for (int64_t first = 0; first < chunks; first += kTile) {
#pragma unroll
    for (int i = 0; i < kFetched; ++i) tile[i * kFetchers + static_cast<int>(threadIdx.y)][threadIdx.x] = fetched[i];
    __syncthreads();
    fetch(first + kTile);
    const int here = static_cast<int>(std::min<int64_t>(kTile, chunks - first));
    if (threadIdx.y == 0) {
#pragma unroll 16
      for (int i = 0; i < here; ++i) total += tile[i][threadIdx.x];
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && col < cols) out[col] = narrow<G>(accumulate ? static_cast<Sum>(widen(out[col])) + total : total);
}

template <typename T>
void finish(const SumOf<T>* sums, int64_t chunks, TensorView out, bool accumulate, const Launch& launch) {
  const int64_t cols = out.elements();
  const auto with_type = [&]<typename G>() {
    TRIVET_LAUNCH((sum_of_chunks<SumOf<T>, G>), static_cast<unsigned>((cols + kWarp - 1) / kWarp), dim3(kWarp, kFetchers), 0,
                  launch.stream, sums, chunks, cols, data_of<G>(out), accumulate);
  };
  if (out.dtype == DType::Float32)
    with_type.template operator()<float>();
  else
    with_type.template operator()<T>();
}

struct Output {
  TensorView out;
  bool accumulate;
};

// kPack divides cols_of_statistic and the stride.
template <typename T, bool kGain, bool kBias, int kPack>
void launch_chunks(const Columns<T>& args, const Launch& launch) {
  const int64_t col_blocks = (args.cols / kPack + kWarp - 1) / kWarp;
  const int64_t chunk_blocks = std::min<int64_t>((args.chunks + kChunksOfBlock - 1) / kChunksOfBlock, 65535);
  TRIVET_LAUNCH((sum_chunks<T, kGain, kBias, kPack>),
                dim3(static_cast<unsigned>(col_blocks), static_cast<unsigned>(chunk_blocks)), dim3(kWarp, kChunksOfBlock), 0,
                launch.stream, args);
}

// dgain and dbias may be absent.
void sum_columns(ConstTensorView dy, ConstTensorView x, ConstTensorView mean, ConstTensorView rstd, const Output& dgain,
                 const Output& dbias, const Launch& launch) {
  const bool gain = !dgain.out.absent(), bias = !dbias.out.absent();
  if (dy.shape.cols() == 0 || (!gain && !bias)) return;
  dispatch_device_float(dy.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    auto* sums = static_cast<std::byte*>(launch.workspace.data);
    Columns<T> args{data_of<T>(dy),
                    data_of<T>(x),
                    data_of<Sum>(mean),
                    data_of<Sum>(rstd),
                    reinterpret_cast<Sum*>(sums),
                    reinterpret_cast<Sum*>(sums + (gain ? column_sum_bytes(dy) : 0)),
                    dy.shape.rows(),
                    dy.shape.cols(),
                    (dy.shape.rows() + kRowChunk - 1) / kRowChunk};
    constexpr int kPack = kPackOf<T>;
    const auto sum_packs = [&]<int kWidth>() {
      if (gain && bias)
        launch_chunks<T, true, true, kWidth>(args, launch);
      else if (gain)
        launch_chunks<T, true, false, kWidth>(args, launch);
      else
        launch_chunks<T, false, true, kWidth>(args, launch);
    };
    if (args.chunks > 0) {
      if (args.cols % kPack == 0 && aligned_for_packs<kPack>(args.dy, args.x))
        sum_packs.template operator()<kPack>();
      else
        sum_packs.template operator()<1>();
    }
    if (gain) finish<T>(args.gain_sums, args.chunks, dgain.out, dgain.accumulate, launch);
    if (bias) finish<T>(args.bias_sums, args.chunks, dbias.out, dbias.accumulate, launch);
  });
}

}  // namespace

void compute(const BiasGradient& args, const Launch& launch) {
  sum_columns(args.dy, {}, {}, {}, {}, {args.dbias, args.accumulate}, launch);
}

void compute(const LayerNormBackwardWeight& args, const Launch& launch) {
  sum_columns(args.dy, args.x, args.mean, args.rstd, {args.dgain, args.accumulate_gain}, {args.dbias, args.accumulate_bias},
              launch);
}

void compute(const RmsNormBackwardWeight& args, const Launch& launch) {
  sum_columns(args.dy, args.x, {}, args.rstd, {args.dgain, args.accumulate}, {}, launch);
}

void compute(const HeadNormBackwardWeight& args, const Launch& launch) {
  dispatch_device_float(args.qkv.dtype, [&]<typename T>() {
    using Sum = SumOf<T>;
    constexpr int kPack = kPackOf<T>;
    const int64_t tokens = args.qkv.shape.rows();
    const Columns<T> columns{.dy = data_of<T>(args.dout),
                             .x = data_of<T>(args.qkv),
                             .mean = nullptr,
                             .rstd = data_of<Sum>(args.rstd),
                             .gain_sums = static_cast<Sum*>(launch.workspace.data),
                             .bias_sums = nullptr,
                             .rows = tokens,
                             .cols = args.dgains.elements(),
                             .chunks = (tokens + kRowChunk - 1) / kRowChunk,
                             .stride = args.qkv.shape[2],
                             .cols_of_statistic = args.head_size()};
    if (columns.chunks > 0) {
      if (columns.cols_of_statistic % kPack == 0 && aligned_for_packs<kPack>(columns.dy, columns.x))
        launch_chunks<T, true, false, kPack>(columns, launch);
      else
        launch_chunks<T, true, false, 1>(columns, launch);
    }
    finish<T>(columns.gain_sums, columns.chunks, args.dgains, false, launch);
  });
}

}  // namespace trivet::kernels::cuda
