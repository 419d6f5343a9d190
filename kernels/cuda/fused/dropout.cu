// Dropout with the CPU's masks: each element's random word is a function of the site, the step and its position in the sample.
// Rows here are samples, so that a thread's elements have the same position in every sample. The results equal the CPU's bit
// for bit.
#include "kernels/cuda/fused/dropout_mask.cuh"
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

// out = (residual +) dropout(x)
template <typename T, bool kResidual>
struct DropoutOp {
  const T *x, *residual;
  T* out;
  int64_t per_sample;
  Mask<SumOf<T>> mask;
  __device__ void begin() { mask.begin(); }
  template <int N>
  struct Loaded {
    Pack<T, N> x, residual;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t sample, int64_t col) const {
    const int64_t at = sample * per_sample + col;
    Loaded<N> loaded;
    loaded.x = load_pack<N>(x + at);
    if constexpr (kResidual) loaded.residual = load_pack<N>(residual + at);
    return loaded;
  }
  template <int N>
  __device__ void finish(int64_t sample, int64_t col, const Loaded<N>& loaded) const {
    SumOf<T> values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = widen(loaded.x[i]);
    mask.template apply<N>(sample, col, values);
    Pack<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (kResidual)
        result[i] = narrow<T>(widen(loaded.residual[i]) + values[i]);
      else
        result[i] = narrow<T>(values[i]);
    }
    store_pack(out + sample * per_sample + col, result);
  }
};

template <typename T>
struct AddOp : ElementOp {
  const T *x, *residual;
  T* out;
  template <int N>
  struct Loaded {
    Pack<T, N> x, residual;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t first) const {
    return {load_pack<N>(x + first), load_pack<N>(residual + first)};
  }
  template <int N>
  __device__ void finish(int64_t first, const Loaded<N>& loaded) const {
    Pack<T, N> sum;
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = narrow<T>(widen(loaded.residual[i]) + widen(loaded.x[i]));
    store_pack(out + first, sum);
  }
};

template <bool kResidual>
void drop(ConstTensorView x, ConstTensorView residual, TensorView out, const DropoutSite& site, const Launch& launch) {
  const int64_t samples = x.shape[0], per_sample = samples == 0 ? 0 : x.elements() / samples;
  dispatch_device_float(x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const DropoutOp<T, kResidual> op{data_of<T>(x), data_of<T>(residual), data_of<T>(out), per_sample, Mask<SumOf<T>>(site)};
    const bool aligned = mask_fits_packs<T>(site) && aligned_for_packs<kPack>(op.x, op.residual, op.out);
    launch_rows<kPack, 2>(op, samples, per_sample, aligned, launch);
  });
}

}  // namespace

void compute(const DropoutAdd& args, const Launch& launch) {
  const DropoutSite& site = args.dropout;
  if (args.residual.absent())
    return site.rate == 0 ? compute(Copy{args.x, args.out}, launch) : drop<false>(args.x, {}, args.out, site, launch);
  if (site.rate != 0) return drop<true>(args.x, args.residual, args.out, site, launch);
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    AddOp<T> op;
    op.x = data_of<T>(args.x);
    op.residual = data_of<T>(args.residual);
    op.out = data_of<T>(args.out);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.x, op.residual, op.out), launch);
  });
}

void compute(const DropoutBackward& args, const Launch& launch) {
  if (args.dropout.rate == 0) return compute(Copy{args.dy, args.dx}, launch);
  drop<false>(args.dy, {}, args.dx, args.dropout, launch);
}

}  // namespace trivet::kernels::cuda
