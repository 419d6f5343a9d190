// RmsNorm of query heads and key heads, and the gradient of its input. A warp has one head of one token; qkv is a list of such
// rows. column_sums.cu has the gradient of the gains.
#include "kernels/cuda/fused/rows.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename T>
struct Heads {
  const T *dy, *x, *query_gain, *key_gain;  // dy: of the backward
  T* out;
  SumOf<T>* rstd;
  int64_t rows;                           // all heads of all tokens
  int heads, normalized, all, head_size;  // per token: query heads, with key heads, with value heads
  float epsilon;

  template <typename Args>
  Heads(const Args& args, ConstTensorView dout, TensorView result)
      : dy(data_of<T>(dout)),
        x(data_of<T>(args.qkv)),
        query_gain(data_of<T>(args.query_gain)),
        key_gain(data_of<T>(args.key_gain)),
        out(data_of<T>(result)),
        rstd(const_cast<SumOf<T>*>(static_cast<const SumOf<T>*>(args.rstd.data))),
        heads(static_cast<int>(args.heads)),
        normalized(static_cast<int>(args.heads + args.key_value_heads)),
        all(static_cast<int>(args.heads + 2 * args.key_value_heads)),
        head_size(static_cast<int>(args.head_size())),
        epsilon(0) {
    rows = args.qkv.shape.rows() * all;
  }
};

// One head of a token: elements [0, head_size) from x, dy and out on.
template <typename T>
struct Head {
  const T *dy, *x, *gain;  // gain: null for values
  T* out;
  SumOf<T>* rstd;

  __device__ __forceinline__ Head(const Heads<T>& a, int64_t row) {
    const int64_t token = row / a.all, first = row * a.head_size;
    const int head = static_cast<int>(row - token * a.all);
    dy = a.dy == nullptr ? nullptr : a.dy + first;
    x = a.x + first, out = a.out + first;
    gain = head < a.heads ? a.query_gain : head < a.normalized ? a.key_gain : nullptr;
    rstd = a.rstd + token * a.normalized + head;
  }
};

template <typename T>
__global__ void __launch_bounds__(kRowThreads<kWarp>) normalize_heads(Heads<T> a) {
  using Sum = SumOf<T>;
  for_each_row<kWarp>(a.rows, [&](int64_t row, int lane) {
    const Head<T> head(a, row);
    if (head.gain == nullptr) {
      for (int i = lane; i < a.head_size; i += kWarp) head.out[i] = head.x[i];
      return;
    }
    Sum squares = 0;
    for (int i = lane; i < a.head_size; i += kWarp) squares += widen(head.x[i]) * widen(head.x[i]);
    const Sum mean_square = join_group<kWarp>(squares, Plus()) / static_cast<Sum>(a.head_size);
    const Sum rstd = Sum(1) / square_root(mean_square + static_cast<Sum>(a.epsilon));
    for (int i = lane; i < a.head_size; i += kWarp) head.out[i] = narrow<T>(widen(head.x[i]) * rstd * widen(head.gain[i]));
    if (lane == 0) *head.rstd = rstd;
  });
}

// dx = rstd (g - n sum(g n) / D) with g = dy gain and n the normalized head.
template <typename T>
__global__ void __launch_bounds__(kRowThreads<kWarp>) head_gradients(Heads<T> a) {
  using Sum = SumOf<T>;
  for_each_row<kWarp>(a.rows, [&](int64_t row, int lane) {
    const Head<T> head(a, row);
    if (head.gain == nullptr) {
      for (int i = lane; i < a.head_size; i += kWarp) head.out[i] = head.dy[i];
      return;
    }
    const Sum rstd = *head.rstd;
    Sum slope = 0;
    for (int i = lane; i < a.head_size; i += kWarp)
      slope += widen(head.dy[i]) * widen(head.gain[i]) * (widen(head.x[i]) * rstd);
    slope = join_group<kWarp>(slope, Plus()) / static_cast<Sum>(a.head_size);
    for (int i = lane; i < a.head_size; i += kWarp) {
      const Sum normalized = widen(head.x[i]) * rstd;
      head.out[i] = narrow<T>(rstd * (widen(head.dy[i]) * widen(head.gain[i]) - normalized * slope));
    }
  });
}

}  // namespace

void compute(const HeadNorm& args, const Launch& launch) {
  if (args.qkv.elements() == 0) return;
  dispatch_device_float(args.qkv.dtype, [&]<typename T>() {
    Heads<T> heads(args, {}, args.out);
    heads.epsilon = args.epsilon;
    TRIVET_LAUNCH(normalize_heads<T>, row_blocks<kWarp>(heads.rows, launch), kRowThreads<kWarp>, 0, launch.stream, heads);
  });
}

void compute(const HeadNormBackwardInput& args, const Launch& launch) {
  if (args.qkv.elements() == 0) return;
  dispatch_device_float(args.qkv.dtype, [&]<typename T>() {
    const Heads<T> heads(args, args.dout, args.dqkv);
    TRIVET_LAUNCH(head_gradients<T>, row_blocks<kWarp>(heads.rows, launch), kRowThreads<kWarp>, 0, launch.stream, heads);
  });
}

}  // namespace trivet::kernels::cuda
