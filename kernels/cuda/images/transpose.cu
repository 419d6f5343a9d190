// Transposes the matrices of a batch: a thread writes one element.
#include "kernels/cuda/images/planes.cuh"

namespace trivet::kernels::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(kImageThreads)
    transpose_matrices(const T* from, T* out, int64_t rows, int64_t cols, int64_t elements) {
  for_each_own(elements, [&](int64_t e) {
    const int64_t row = e % rows, col = e / rows % cols, matrix = e / (rows * cols);
    out[e] = from[(matrix * rows + row) * cols + col];
  });
}

}  // namespace

void compute(const Transpose& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  dispatch_device_float(args.from.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&transpose_matrices<T>, image_blocks(args.out.elements()), kImageThreads, 0, launch.stream,
                  data_of<T>(args.from), data_of<T>(args.out), args.from.shape[1], args.from.shape[2], args.out.elements());
  });
}

}  // namespace trivet::kernels::cuda
