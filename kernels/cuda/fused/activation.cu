// GELU, ReLU, soft caps and SwiGLU. The formulas are the CPU's (kernels/cpu/fused/activation_loops.inl); in float32,
// exponentials and divisions are the device's own, each accurate to 2 units in the last place.
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

// gelu(x) = x sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh(u)) / 2 = sigmoid(2 u).
template <typename Sum>
__device__ __forceinline__ Sum gelu_argument(Sum x) {
  return Sum(1.5957691216057308) * (x + Sum(0.044715) * x * x * x);
}

template <typename Sum>
__device__ __forceinline__ Sum gelu_argument_slope(Sum x) {
  return Sum(1.5957691216057308) * (Sum(1) + Sum(0.134145) * x * x);
}

// sigmoid(z) and sigmoid'(z) = sigmoid(z) (1 - sigmoid(z)), both without cancellation.
template <typename Sum>
struct Sigmoid {
  Sum value, slope;
};
template <typename Sum>
__device__ __forceinline__ Sigmoid<Sum> sigmoid(Sum z) {
  const Sum small = exponential(z < 0 ? z : -z), whole = Sum(1) + small;
  return {quotient(z < 0 ? small : Sum(1), whole), quotient(small, whole * whole)};
}

template <typename T>
struct GeluOp : ElementOp {
  const T* x;
  T* y;
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(x + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const SumOf<T> value = widen(loaded[i]);
      out[i] = narrow<T>(quotient(value, SumOf<T>(1) + exponential(-gelu_argument(value))));
    }
    store_pack(y + first, out);
  }
};

template <typename T>
struct GeluBackwardOp : ElementOp {
  const T *dy, *x;
  T* dx;
  template <int N>
  struct Loaded {
    Pack<T, N> dy, x;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t first) const {
    return {load_pack<N>(dy + first), load_pack<N>(x + first)};
  }
  template <int N>
  __device__ void finish(int64_t first, const Loaded<N>& loaded) const {
    using Sum = SumOf<T>;
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sum value = widen(loaded.x[i]);
      const Sigmoid<Sum> gate = sigmoid(gelu_argument(value));
      out[i] = narrow<T>(widen(loaded.dy[i]) * (gate.value + value * gate.slope * gelu_argument_slope(value)));
    }
    store_pack(dx + first, out);
  }
};

template <typename T>
struct ReluOp : ElementOp {
  const T* x;
  T* y;
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(x + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const SumOf<T> value = widen(loaded[i]);
      out[i] = narrow<T>(value < 0 ? SumOf<T>(0) : value);  // NaN is not less than 0
    }
    store_pack(y + first, out);
  }
};

template <typename T>
struct ReluBackwardOp : ElementOp {
  const T *dy, *x;
  T* dx;
  template <int N>
  struct Loaded {
    Pack<T, N> dy, x;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t first) const {
    return {load_pack<N>(dy + first), load_pack<N>(x + first)};
  }
  template <int N>
  __device__ void finish(int64_t first, const Loaded<N>& loaded) const {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = widen(loaded.x[i]) > 0 ? loaded.dy[i] : narrow<T>(SumOf<T>(0));
    store_pack(dx + first, out);
  }
};

// Rows of gate_up are [gate | up], each `width` long. The gate is x sigmoid(z) with z = x, or with the z of GELU.
template <typename T, bool kGelu>
struct SwiGluOp {
  const T* gate_up;
  T* y;
  int64_t width;
  template <int N>
  struct Loaded {
    Pack<T, N> gate, up;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t row, int64_t col) const {
    const T* gate = gate_up + 2 * row * width + col;
    return {load_pack<N>(gate), load_pack<N>(gate + width)};
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Loaded<N>& loaded) const {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const SumOf<T> value = widen(loaded.gate[i]), argument = kGelu ? gelu_argument(value) : value;
      out[i] = narrow<T>(quotient(value, SumOf<T>(1) + exponential(-argument)) * widen(loaded.up[i]));
    }
    store_pack(y + row * width + col, out);
  }
};

template <typename T, bool kGelu>
struct SwiGluBackwardOp {
  const T *dy, *gate_up;
  T* dgate_up;
  int64_t width;
  template <int N>
  struct Loaded {
    Pack<T, N> dy, gate, up;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t row, int64_t col) const {
    const T* gate = gate_up + 2 * row * width + col;
    return {load_pack<N>(dy + row * width + col), load_pack<N>(gate), load_pack<N>(gate + width)};
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Loaded<N>& loaded) const {
    using Sum = SumOf<T>;
    Pack<T, N> dgate, dup;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sum value = widen(loaded.gate[i]), gradient = widen(loaded.dy[i]), factor = widen(loaded.up[i]);
      const Sigmoid<Sum> part = sigmoid(kGelu ? gelu_argument(value) : value);
      const Sum slope = kGelu ? part.slope * gelu_argument_slope(value) : part.slope;
      dgate[i] = narrow<T>(gradient * factor * (part.value + value * slope));
      dup[i] = narrow<T>(gradient * value * part.value);
    }
    T* gate = dgate_up + 2 * row * width + col;
    store_pack(gate, dgate);
    store_pack(gate + width, dup);
  }
};

__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }

template <typename T>
struct SoftCapOp : ElementOp {
  const T* x;
  T* y;
  SumOf<T> cap;
  template <int N>
  __device__ Pack<T, N> load(int64_t first) const {
    return load_pack<N>(x + first);
  }
  template <int N>
  __device__ void finish(int64_t first, const Pack<T, N>& loaded) const {
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = narrow<T>(cap * hyperbolic_tangent(widen(loaded[i]) / cap));
    store_pack(y + first, out);
  }
};

template <bool kGelu>
void gated(const SwiGlu& args, const Launch& launch) {
  dispatch_device_float(args.y.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const SwiGluOp<T, kGelu> op{data_of<T>(args.gate_up), data_of<T>(args.y), args.y.shape.cols()};
    launch_rows<kPack, 2>(op, args.y.shape.rows(), op.width, aligned_for_packs<kPack>(op.gate_up, op.y), launch);
  });
}

template <bool kGelu>
void gated_backward(const SwiGluBackward& args, const Launch& launch) {
  dispatch_device_float(args.dy.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const SwiGluBackwardOp<T, kGelu> op{data_of<T>(args.dy), data_of<T>(args.gate_up), data_of<T>(args.dgate_up),
                                        args.dy.shape.cols()};
    launch_rows<kPack, 1>(op, args.dy.shape.rows(), op.width, aligned_for_packs<kPack>(op.dy, op.gate_up, op.dgate_up), launch);
  });
}

}  // namespace

void compute(const Gelu& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    GeluOp<T> op;
    op.x = data_of<T>(args.x);
    op.y = data_of<T>(args.y);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.x, op.y), launch);
  });
}

void compute(const GeluBackward& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    GeluBackwardOp<T> op;
    op.dy = data_of<T>(args.dy);
    op.x = data_of<T>(args.x);
    op.dx = data_of<T>(args.dx);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.dy, op.x, op.dx), launch);
  });
}

void compute(const Relu& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    ReluOp<T> op;
    op.x = data_of<T>(args.x);
    op.y = data_of<T>(args.y);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.x, op.y), launch);
  });
}

void compute(const ReluBackward& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    ReluBackwardOp<T> op;
    op.dy = data_of<T>(args.dy);
    op.x = data_of<T>(args.x);
    op.dx = data_of<T>(args.dx);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.dy, op.x, op.dx), launch);
  });
}

void compute(const SoftCap& args, const Launch& launch) {
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    SoftCapOp<T> op;
    op.x = data_of<T>(args.x);
    op.y = data_of<T>(args.y);
    op.cap = static_cast<SumOf<T>>(args.cap);
    launch_elements<kPack, 2>(op, args.x.elements(), aligned_for_packs<kPack>(op.x, op.y), launch);
  });
}

void compute(const SwiGlu& args, const Launch& launch) { args.gelu ? gated<true>(args, launch) : gated<false>(args, launch); }

void compute(const SwiGluBackward& args, const Launch& launch) {
  args.gelu ? gated_backward<true>(args, launch) : gated_backward<false>(args, launch);
}

}  // namespace trivet::kernels::cuda
