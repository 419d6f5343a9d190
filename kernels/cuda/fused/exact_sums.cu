// Exact sums (core/exact_sum.h) on a device: sums of squares of tensors, sums of the losses of microbatches, and the verdict on
// gradients. Terms are converted to integers before they are added, so that the order of the atomics does not matter.
#include "core/exact_sum.h"
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/verdict.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256, kGroup = 16, kGroupsOfWarp = 2, kWarps = kThreads / 32;

// Words of a sum that a thread keeps in registers.
struct Words {
  int64_t words[ExactSum::kWords] = {};

  __device__ void add(double value) {
    const ExactTerm term = ExactSum::term_of(value);
    if (term.limb < 0) ++words[ExactSum::kLimbs];
#pragma unroll
    for (int word = 0; word < ExactSum::kLimbs; ++word)  // constant indices keep the words in registers
#pragma unroll
      for (int digit = 0; digit < ExactTerm::kDigits; ++digit)
        words[word] += term.limb >= 0 && term.limb + digit == word ? term.digits[digit] : 0;
  }
};

// 16 threads sum a block of elements as the CPU does: thread i adds elements i, i + 16 ... in order, then a tree adds the
// threads' sums.
template <typename T>
__device__ double sum_of_block(const T* x, double scale, int64_t count, int lane) {
  double sum = 0;
  int64_t i = lane;
  const auto square = [&](T element) {
    const double value = static_cast<double>(widen(element)) * scale;
    return value * value;
  };
  constexpr int kUnroll = 16;  // enough for a block of kSumBlock elements
  for (; i + (kUnroll - 1) * kGroup < count; i += kUnroll * kGroup) {
    T loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = x[i + u * kGroup];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum += square(loaded[u]);
  }
  for (; i < count; i += kGroup) sum += square(x[i]);
#pragma unroll
  for (int mask = kGroup / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  return sum;
}

// Tensors whose squares one launch sums, with their blocks numbered consecutively. A list has as many as fit into the 4 KiB of
// a launch's arguments.
template <typename T>
struct SquaresList {
  struct Term {
    const T* x;
    Number scale;
    int64_t count, block, end_group;  // a group is 16 threads, which sum one block
  };
  static constexpr int kMost = (4096 - 32) / static_cast<int>(sizeof(Term));
  Term terms[kMost];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ SquaresList<T> list, int64_t groups, int64_t* sum) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t step = int64_t{gridDim.x} * kThreads / kGroup;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kGroup;
  Words words;
  int term = 0;
  int64_t first_group = 0;  // first group of the term
  double factor = read(list.terms[0].scale);
  // Both halves of a warp stay in the loop together, as the shuffles require.
  for (int64_t group = first, of_warp = first - first % kGroupsOfWarp; of_warp < groups; group += step, of_warp += step) {
    while (group < groups && group >= list.terms[term].end_group) {
      first_group = list.terms[term++].end_group;
      factor = read(list.terms[term].scale);
    }
    const typename SquaresList<T>::Term& t = list.terms[term];
    const int64_t begin = group < groups ? (group - first_group) * t.block : t.count;
    const double total = sum_of_block(t.x + begin, factor, std::min(t.block, t.count - begin), lane);
    if (lane == 0) words.add(total);
  }
  __shared__ int64_t of_warps[kWarps][ExactSum::kWords];
#pragma unroll
  for (int word = 0; word < ExactSum::kWords; ++word) {  // the other lanes have zeros
    const int64_t both = words.words[word] + __shfl_xor_sync(0xffffffffu, words.words[word], kGroup);
    if (threadIdx.x % 32 == 0) of_warps[warp][word] = both;
  }
  __syncthreads();
  if (threadIdx.x >= ExactSum::kWords) return;
  int64_t total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warps[w][threadIdx.x];
  if (total != 0) add_atomically(sum + threadIdx.x, total);
}

__device__ void add_exactly(double value, int64_t* words) {
  const ExactTerm term = ExactSum::term_of(value);
  if (term.limb < 0) add_atomically(words + ExactSum::kLimbs, 1);
  for (int i = 0; term.limb >= 0 && i < ExactTerm::kDigits && term.limb + i < ExactSum::kLimbs; ++i)
    add_atomically(words + term.limb + i, term.digits[i]);
}

__global__ void __launch_bounds__(kThreads) add_losses(const double* losses, int64_t count, int64_t further, int64_t* words) {
  for (int64_t m = threadIdx.x; m < count; m += kThreads) {
    const double* own = losses + (1 + kLossCounts + further) * m;
    add_exactly(own[0], words);
    for (int i = 0; i < kLossCounts; ++i) add_atomically(words + ExactSum::kWords + i, static_cast<int64_t>(own[1 + i]));
    for (int64_t i = 0; i < further; ++i)
      add_exactly(own[1 + kLossCounts + i], words + (1 + i) * ExactSum::kWords + kLossCounts);
  }
}

__global__ void judge_once(const int64_t* square_sum, const int64_t* losses, GradientRules rules, double* verdict) {
  judge(square_sum, losses, rules, verdict);
}

// The terms must have one type, and be at most as many as a list holds.
template <typename T>
void launch_squares(std::span<const Squares> terms, TensorView sum, const Launch& launch) {
  SquaresList<T> list{};
  int64_t groups = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const int64_t count = terms[i].x.elements(), block = terms[i].block;
    groups += (count + block - 1) / block;
    list.terms[i] = {data_of<T>(terms[i].x), terms[i].scale, count, block, groups};
  }
  if (groups == 0) return;
  // No more blocks than run at a time, because each ends with atomics on the same words.
  const int64_t wanted = (groups + kThreads / kGroup - 1) / (kThreads / kGroup), most = launch.multiprocessors * int64_t{8};
  TRIVET_LAUNCH(&sum_squares<T>, static_cast<unsigned>(std::min(wanted, most)), kThreads, 0, launch.stream, list, groups,
                data_of<int64_t>(sum));
}

}  // namespace

void compute(const SumOfSquares& args, const Launch& launch) {
  std::span<const Squares> terms = args.terms;
  while (!terms.empty()) {
    const DType dtype = terms.front().x.dtype;
    size_t taken = 0;
    dispatch_device_float(dtype, [&]<typename T>() {
      while (taken < terms.size() && taken < SquaresList<T>::kMost && terms[taken].x.dtype == dtype) ++taken;
      launch_squares<T>(terms.first(taken), args.sum, launch);
    });
    terms = terms.subspan(taken);
  }
}

void compute(const SumLosses& args, const Launch& launch) {
  if (args.losses.elements() == 0) return;
  TRIVET_LAUNCH(&add_losses, 1, kThreads, 0, launch.stream, data_of<double>(args.losses), args.losses.shape.rows(),
                args.further(), data_of<int64_t>(args.words));
}

void compute(const JudgeGradients& args, const Launch& launch) {
  const GradientRules rules{args.unit, args.clipping, args.check_finite};
  TRIVET_LAUNCH(&judge_once, 1, 1, 0, launch.stream, data_of<int64_t>(args.square_sum), data_of<int64_t>(args.losses), rules,
                data_of<double>(args.verdict));
}

}  // namespace trivet::kernels::cuda
