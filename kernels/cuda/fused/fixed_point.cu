// Conversions to and from the 64-bit grid (core/fixed_point.h). Values that do not fit are counted in device memory. There are
// usually none, so each thread that finds some adds its own count.
#include "core/fixed_point.h"
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"

namespace trivet::kernels::cuda {
namespace {

static_assert(fixed_point::kFractionBits == 44, "the code below is written for 44 fraction bits");

struct Grid {
  Number scale;
  double limit;
  int64_t* refused;
  double factor = 1;  // the scale; set by begin()

  __device__ bool begin() {
    factor = read(scale);
    return true;
  }
  // The multiple of 2^-44 nearest to x * factor, times 2^44. A value that does not fit becomes 0 and is counted.
  __device__ double to_grid(double x, int& refused_here) const {
    const double value = x * factor;
    const bool fits = fabs(value) < limit;  // false for NaN
    refused_here += fits ? 0 : 1;
    return rint((fits ? value : 0.0) * 0x1p44);
  }
  __device__ void count(int refused_here) const {
    if (refused_here != 0) add_atomically(refused, refused_here);
  }
};

// kAdd: += instead of =. Sums to which only zeros would be added are not touched: an embedding's gradient is mostly zeros, and
// sums are up to four times as wide as values.
template <typename T, bool kAdd>
struct ToFixedPoint : ElementOp {
  const T* x;
  int64_t* sum;
  Grid grid;
  __device__ bool begin() { return grid.begin(); }
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(x + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<int64_t, N> words;
    int refused = 0;
    bool other_than_zero = false;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      words[i] = static_cast<int64_t>(grid.to_grid(static_cast<double>(widen(loaded[i])), refused));
      other_than_zero |= words[i] != 0;
    }
    grid.count(refused);
    if constexpr (kAdd) {
      if (!other_than_zero) return;
      const Pack<int64_t, N> before = load_pack<N>(sum + first);
#pragma unroll
      for (int i = 0; i < N; ++i)
        words[i] = static_cast<int64_t>(static_cast<uint64_t>(before[i]) + static_cast<uint64_t>(words[i]));
    }
    store_pack(sum + first, words);
  }
};

template <typename T>
struct FromFixedPoint : ElementOp {
  const int64_t* sum;
  T* out;
  template <int N>
  __device__ Pack<int64_t, N> load(int64_t first) const {
    return load_pack<N>(sum + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<int64_t, N>& loaded) const {
    Pack<T, N> values;
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = narrow<T>(static_cast<double>(loaded[i]) * 0x1p-44);
    store_pack(out + first, values);
  }
};

template <typename T, typename To>
struct RoundToGrid : ElementOp {
  const T* x;
  To* out;
  Grid grid;
  __device__ bool begin() { return grid.begin(); }
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(x + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<To, N> values;
    int refused = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)  // + 0.0: no -0, as with integers
      values[i] = narrow<To>((grid.to_grid(static_cast<double>(widen(loaded[i])), refused) + 0.0) * 0x1p-44);
    grid.count(refused);
    store_pack(out + first, values);
  }
};

template <bool kAdd>
void to_fixed_point(ConstTensorView x, const Grid& grid, TensorView sum, const Launch& launch) {
  dispatch_device_float(x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<int64_t>;
    ToFixedPoint<T, kAdd> op;
    op.x = data_of<T>(x);
    op.sum = data_of<int64_t>(sum);
    op.grid = grid;
    const bool aligned = aligned_for_packs<kPack>(op.x) && aligned_for_packs<kPack>(op.sum);
    launch_elements<kPack, kAdd ? 2 : 4>(op, x.elements(), aligned, launch);
  });
}

}  // namespace

void compute(const FixedPointAdd& args, const Launch& launch) {
  to_fixed_point<true>(args.x, {args.scale, args.limit, data_of<int64_t>(args.refused)}, args.sum, launch);
}

void compute(const FixedPointStore& args, const Launch& launch) {
  to_fixed_point<false>(args.x, {args.scale, args.limit, data_of<int64_t>(args.refused)}, args.sum, launch);
}

void compute(const FixedPointRead& args, const Launch& launch) {
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<int64_t>;
    FromFixedPoint<T> op;
    op.sum = data_of<int64_t>(args.sum);
    op.out = data_of<T>(args.out);
    const bool aligned = aligned_for_packs<kPack>(op.sum) && aligned_for_packs<kPack>(op.out);
    launch_elements<kPack, 4>(op, args.out.elements(), aligned, launch);
  });
}

void compute(const FixedPointRound& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    dispatch_device_float(args.out.dtype, [&]<typename To>() {
      constexpr int kPack = kPackOf<T, To>;
      RoundToGrid<T, To> op;
      op.x = data_of<T>(args.x);
      op.out = data_of<To>(args.out);
      op.grid = {args.scale, args.limit, data_of<int64_t>(args.refused)};
      const bool aligned = aligned_for_packs<kPack>(op.x) && aligned_for_packs<kPack>(op.out);
      launch_elements<kPack, 2>(op, args.out.elements(), aligned, launch);
    });
  });
}

}  // namespace trivet::kernels::cuda
