#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/activation_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {

void compute(const Gelu& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::gelu<T>, &v3::gelu<T>, &v4::gelu<T>);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    for_each_element_range(args.x.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(x + begin, y + begin, end - begin); });
  });
}

void compute(const GeluBackward& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::gelu_backward<T>, &v3::gelu_backward<T>, &v4::gelu_backward<T>);
    const T *dy = args.dy.as<T>(), *x = args.x.as<T>();
    T* dx = args.dx.as<T>();
    for_each_element_range(args.x.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(dy + begin, x + begin, dx + begin, end - begin); });
  });
}

void compute(const Relu& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::relu<T>, &v3::relu<T>, &v4::relu<T>);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    for_each_element_range(args.x.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(x + begin, y + begin, end - begin); });
  });
}

void compute(const ReluBackward& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::relu_backward<T>, &v3::relu_backward<T>, &v4::relu_backward<T>);
    const T *dy = args.dy.as<T>(), *x = args.x.as<T>();
    T* dx = args.dx.as<T>();
    for_each_element_range(args.x.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(dy + begin, x + begin, dx + begin, end - begin); });
  });
}

void compute(const SoftCap& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::soft_cap<T>, &v3::soft_cap<T>, &v4::soft_cap<T>);
    const T* x = args.x.as<T>();
    T* y = args.y.as<T>();
    const auto cap = static_cast<SumOf<T>>(args.cap);
    for_each_element_range(args.x.elements(), threads,
                           [&](int64_t begin, int64_t end) { loop(x + begin, y + begin, cap, end - begin); });
  });
}

void compute(const SwiGlu& args, int threads) {
  dispatch_float(args.y.dtype, [&]<typename T>() {
    const auto loop = args.gelu ? by_isa(&baseline::swiglu<T, true>, &v3::swiglu<T, true>, &v4::swiglu<T, true>)
                                : by_isa(&baseline::swiglu<T, false>, &v3::swiglu<T, false>, &v4::swiglu<T, false>);
    const T* gate_up = args.gate_up.as<T>();
    T* y = args.y.as<T>();
    const int64_t width = args.y.shape.cols();
    for_each_range(args.y.shape.rows(), threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        loop(gate_up + 2 * row * width, gate_up + (2 * row + 1) * width, y + row * width, width);
    });
  });
}

void compute(const SwiGluBackward& args, int threads) {
  dispatch_float(args.dy.dtype, [&]<typename T>() {
    const auto loop =
        args.gelu
            ? by_isa(&baseline::swiglu_backward<T, true>, &v3::swiglu_backward<T, true>, &v4::swiglu_backward<T, true>)
            : by_isa(&baseline::swiglu_backward<T, false>, &v3::swiglu_backward<T, false>, &v4::swiglu_backward<T, false>);
    const T *dy = args.dy.as<T>(), *gate_up = args.gate_up.as<T>();
    T* dgate_up = args.dgate_up.as<T>();
    const int64_t width = args.dy.shape.cols();
    for_each_range(args.dy.shape.rows(), threads, 1, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t gate = 2 * row * width, up = gate + width;
        loop(dy + row * width, gate_up + gate, gate_up + up, dgate_up + gate, dgate_up + up, width);
      }
    });
  });
}

}  // namespace trivet::kernels::cpu
