// Kernels that make one pass over flat ranges: zeros, copies and conversions, sums and multiples. Another one adds a bias to
// rows.
#include "core/exact_sum.h"
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename From, typename To>
struct Convert : ElementOp {
  const From* from;
  To* to;
  template <int N>
  __device__ Pack<From, N> load(int64_t first) const {
    return load_pack<N>(from + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<From, N>& loaded) const {
    Pack<To, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = narrow<To>(widen(loaded[i]));
    store_pack(to + first, out);
  }
};

template <typename T>
struct TwoPacks {
  T left, right;
};

template <typename T>
struct AddElements : ElementOp {
  const T* from;
  T* out;
  template <int N>
  __device__ TwoPacks<Pack<T, N>> load(int64_t first) const {
    return {load_pack<N>(out + first), load_pack<N>(from + first)};
  }
  template <int N>
  __device__ void finish(int64_t first, const TwoPacks<Pack<T, N>>& loaded) const {
    Pack<T, N> sum;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (std::is_same_v<T, int64_t>)
        sum[i] = static_cast<int64_t>(static_cast<uint64_t>(loaded.left[i]) + static_cast<uint64_t>(loaded.right[i]));
      else
        sum[i] = narrow<T>(widen(loaded.left[i]) + widen(loaded.right[i]));
    }
    store_pack(out + first, sum);
  }
};

template <typename T>
struct ScaleElements : ElementOp {
  T* out;
  double factor;
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(out + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<T, N> product;
#pragma unroll
    for (int i = 0; i < N; ++i) product[i] = narrow<T>(static_cast<double>(widen(loaded[i])) * factor);
    store_pack(out + first, product);
  }
};

// The factor comes from device memory: one thread of each block computes it.
template <typename T>
struct DivideElements : ScaleElements<T> {
  const int64_t* square_sum;
  double epsilon;
  __device__ bool begin() {
    __shared__ double shared_factor;
    if (threadIdx.x == 0) shared_factor = 1 / (sqrt(ExactSum::value_of(square_sum)) + epsilon);
    __syncthreads();
    this->factor = shared_factor;
    return true;
  }
};

template <typename T, typename X>
struct AddBiasToRows {
  const X* x;
  const T* bias;
  T* out;
  int64_t cols;
  template <int N>
  struct Loaded {
    Pack<X, N> x;
    Pack<T, N> bias;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t row, int64_t col) const {
    return {load_pack<N>(x + row * cols + col), load_pack<N>(bias + col)};
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Loaded<N>& loaded) const {
    Pack<T, N> sum;
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = narrow<T>(widen(loaded.x[i]) + widen(loaded.bias[i]));
    store_pack(out + row * cols + col, sum);
  }
};

template <typename T>
void launch_add(ConstTensorView from, TensorView out, const Launch& launch) {
  constexpr int kPack = kPackOf<T>;
  AddElements<T> op;
  op.from = data_of<T>(from);
  op.out = data_of<T>(out);
  launch_elements<kPack, 2>(op, out.elements(), aligned_for_packs<kPack>(op.from, op.out), launch);
}

}  // namespace

void compute(const Zero& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  CUDA_CHECK(cudaMemsetAsync(args.out.data, 0, static_cast<size_t>(args.out.bytes()), launch.stream));
}

void compute(const Copy& args, const Launch& launch) {
  if (args.out.elements() == 0 || (args.from.dtype == args.out.dtype && args.from.data == args.out.data)) return;
  if (args.from.dtype == args.out.dtype) {
    CUDA_CHECK(cudaMemcpyAsync(args.out.data, args.from.data, static_cast<size_t>(args.out.bytes()), cudaMemcpyDeviceToDevice,
                               launch.stream));
    return;
  }
  dispatch_device_float(args.from.dtype, [&]<typename From>() {
    dispatch_device_float(args.out.dtype, [&]<typename To>() {
      if constexpr (!std::is_same_v<From, To>) {
        constexpr int kPack = kPackOf<From, To>;
        Convert<From, To> op;
        op.from = data_of<From>(args.from);
        op.to = data_of<To>(args.out);
        launch_elements<kPack, 4>(op, args.out.elements(), aligned_for_packs<kPack>(op.from, op.to), launch);
      }
    });
  });
}

void compute(const Add& args, const Launch& launch) {
  if (args.out.dtype == DType::Int64) return launch_add<int64_t>(args.from, args.out, launch);
  dispatch_device_float(args.out.dtype, [&]<typename T>() { launch_add<T>(args.from, args.out, launch); });
}

void compute(const Scale& args, const Launch& launch) {
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    ScaleElements<T> op;
    op.out = data_of<T>(args.out);
    op.factor = args.factor;
    launch_elements<kPackOf<T>, 4>(op, args.out.elements(), aligned_for_packs<kPackOf<T>>(op.out), launch);
  });
}

void compute(const DivideByNorm& args, const Launch& launch) {
  dispatch_device_float(args.out.dtype, [&]<typename T>() {
    DivideElements<T> op;
    op.out = data_of<T>(args.out);
    op.square_sum = data_of<int64_t>(args.square_sum);
    op.epsilon = args.epsilon;
    launch_elements<kPackOf<T>, 4>(op, args.out.elements(), aligned_for_packs<kPackOf<T>>(op.out), launch);
  });
}

void compute(const AddBias& args, const Launch& launch) {
  if (args.bias.absent()) return compute(Copy{args.x, args.out}, launch);
  dispatch_gradient(args.out.dtype, args.x.dtype, [&]<typename T, typename X>() {
    constexpr int kPack = kPackOf<T, X>;
    const AddBiasToRows<T, X> op{data_of<X>(args.x), data_of<T>(args.bias), data_of<T>(args.out), args.out.shape.cols()};
    launch_rows<kPack, 4>(op, args.out.shape.rows(), op.cols,
                          aligned_for_packs<kPack>(op.x) && aligned_for_packs<kPack>(op.bias, op.out), launch);
  });
}

}  // namespace trivet::kernels::cuda
