// Copies runs of elements between two orders, a run for each row of threads.
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/memory.h"

namespace trivet::kernels::cuda {
namespace {

struct Steps {
  int64_t middle, last;  // counts
  int64_t steps[3];
  __device__ int64_t place(int64_t run) const {
    const int64_t rest = run / last;
    return rest / middle * steps[0] + rest % middle * steps[1] + run % last * steps[2];
  }
};

template <typename T>
struct CopyRun {
  const T* from;
  T* to;
  Steps of_from, of_to;
  template <int N>
  __device__ Pack<T, N> load(int64_t run, int64_t col) const {
    return load_pack<N>(from + of_from.place(run) + col);
  }
  template <int N>
  __device__ void finish(int64_t run, int64_t col, const Pack<T, N>& loaded) const {
    store_pack(to + of_to.place(run) + col, loaded);
  }
};

Steps steps_of(const CopyRuns& args, const std::array<int64_t, 3>& steps) {
  return {args.counts[1], args.counts[2], {steps[0], steps[1], steps[2]}};
}

// Whether every run begins where a pack may.
template <int kPack>
bool packs_fit(const std::array<int64_t, 3>& steps) {
  return steps[0] % kPack == 0 && steps[1] % kPack == 0 && steps[2] % kPack == 0;
}

}  // namespace

void compute(const CopyRuns& args, const Launch& launch) {
  ConstTensorView from = args.from;
  TensorView out = args.out;
  if (from.dtype == DType::Int32) from.dtype = out.dtype = DType::Float32;  // bits are moved, whatever they mean
  dispatch_device_float(from.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const CopyRun<T> op{data_of<T>(from), data_of<T>(out), steps_of(args, args.from_steps), steps_of(args, args.out_steps)};
    const bool aligned = packs_fit<kPack>(args.from_steps) && packs_fit<kPack>(args.out_steps) &&
                         aligned_for_packs<kPack>(op.from, static_cast<const T*>(op.to));
    launch_rows<kPack, 2>(op, args.runs(), args.run, aligned, launch);
  });
}

}  // namespace trivet::kernels::cuda
