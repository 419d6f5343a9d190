// The interface of all kernels. CpuKernels and CudaKernels compute, MetaKernels only counts.
//
// A kernel is called with a struct of its arguments, which says what it computes (products.h, norms.h ...), checks itself and
// describes its cost. To add one: a struct with check() and describe(), its line in list.h, and a function compute(arguments,
// ...) for each device.
//
//   T rows (tokens of a microbatch: batch x sequence), H hidden, F feed-forward, V vocabulary
//   B sequences, S tokens per sequence, N query heads, G key/value heads (G divides N), D head size
//
// These rules hold for all kernels. Tensors are dense and row-major. Unless stated otherwise, all activations, weights and
// gradients of a call have one dtype (float32, bfloat16, float16 or, for gradient checks, float64); sums and statistics are
// kept in float32 (float64 when the dtype is float64). Gradients of parameters (Matmul::out, dbias, dgain, dtable, dpositions)
// may also be float32, whatever the dtype of the rest: layout mode rounds a microbatch's gradient once, from float32.
// "accumulate" means out += result instead of out = result, rounded once. Arguments marked optional may be absent. Device
// kernels are enqueued on the stream that the object is bound to; CPU kernels are done when the call returns. Losses, sums and
// counts are added to tensors too, so that nobody has to wait for them. Results do not depend on the number of threads, nor on
// what else is in a call: where the mathematics allows it, row t of an output depends only on row t of the inputs. Sums over
// rows (weight gradients) run in a fixed order. Sizes may be 0. Values that may change from step to step are Numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "core/device.h"
#include "core/number.h"
#include "core/parameter_spec.h"
#include "core/tensor_view.h"
#include "kernels/list.h"

namespace trivet::kernels {

#define TRIVET_DECLARE(Arguments, ...) struct Arguments;
TRIVET_NAMED_KERNELS(TRIVET_DECLARE)
TRIVET_OTHER_KERNELS(TRIVET_DECLARE)
#undef TRIVET_DECLARE
struct Adam;     // kernels/optimizers.h
struct Squares;  // kernels/sums.h

template <typename, typename... Arguments>
struct OneOf {
  using Type = std::variant<const Arguments*...>;
};
// The arguments of any kernel.
#define TRIVET_COMMA_AND(Arguments, ...) , Arguments
using KernelArguments = OneOf<void TRIVET_NAMED_KERNELS(TRIVET_COMMA_AND) TRIVET_OTHER_KERNELS(TRIVET_COMMA_AND)>::Type;
#undef TRIVET_COMMA_AND

// FLOPs, bytes moved and launches so far, and the largest scratch memory that one of the calls needs on a GPU and, for
// attention, in each thread of a CPU (kernels/workspace.h). Only MetaKernels counts; the other kernels return zeros.
struct Counters {
  double flops = 0, bytes = 0;
  int64_t launches = 0, workspace_bytes = 0, thread_scratch_bytes = 0;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual Device device() const = 0;

  // Runs the kernel that takes these arguments. Throws std::logic_error if they do not fit together (check() of each).
  virtual void run(const KernelArguments& arguments) = 0;

  // matmul(const Matmul&) and so on.
#define TRIVET_METHOD(Arguments, method) \
  void method(const Arguments& a) { run(&a); }
  TRIVET_NAMED_KERNELS(TRIVET_METHOD)
#undef TRIVET_METHOD
  void adam(const Adam& one);
  void adam(std::span<const Adam> updates);  // the result is the same as with one call per update

  void zero(TensorView out);
  void copy(ConstTensorView from, TensorView out);
  void add(ConstTensorView from, TensorView out);
  void scale(TensorView out, double factor);
  void transpose(ConstTensorView from, TensorView out);
  void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element);

  void sum_of_squares(std::span<const Squares> terms, TensorView sum);
  void sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum);
  void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon);
  void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused);
  void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused);
  void fixed_point_read(ConstTensorView sum, TensorView out);
  void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused);

  void quantize(ConstTensorView x, TensorView packed, int bits);
  void dequantize(ConstTensorView packed, TensorView out, int bits, bool accumulate);

  // Copies between device and host memory, of the same type and size. `from` may change once from_host has returned. to_host
  // returns when all work before it is done; it is the only call that always waits.
  virtual void from_host(ConstTensorView from, TensorView out) = 0;
  virtual void to_host(ConstTensorView from, TensorView out) = 0;
  // Copies in either direction, in stream order like a kernel. The host does not wait: until the copy is done, `from` must not
  // change and nobody else may use `out`. It is slow if the host memory is not page-locked (Backend::staging_allocator).
  virtual void copy_pinned(ConstTensorView from, TensorView out) = 0;

  virtual Counters counters() const { return {}; }
};

// threads: how many threads the kernels may use (0: all that OpenMP offers).
std::unique_ptr<Kernels> make_cpu_kernels(int threads);
// The meta kernels compute nothing; their views need no memory.
std::unique_ptr<Kernels> make_meta_kernels();

}  // namespace trivet::kernels
