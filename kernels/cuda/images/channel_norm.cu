// Group norm and batch norm of images: one block for each set of elements that are normalized together, and one for each
// channel in the gradients of gain and bias. Threads add in double, in an order that depends only on shapes.
#include "kernels/cuda/images/planes.cuh"
#include "kernels/cuda/number.cuh"

namespace trivet::kernels::cuda {
namespace {

// The elements of sets and of channels. A plane is one channel of one image.
struct PlaneSets {
  int64_t images, channels, pixels;  // pixels of a plane
  int64_t sets, of_a_set;            // number of sets, and elements of each
  bool batch;

  PlaneSets(const Shape& x, const NormSets& norm)
      : images(x[0]),
        channels(x[1]),
        pixels(x[0] * x[1] == 0 ? 0 : x.elements() / (x[0] * x[1])),
        sets(norm.count(x)),
        of_a_set(norm.elements(x)),
        batch(norm.groups == NormSets::kBatch) {}

  // use(channel, element) for this thread's elements of a set. The sets of group norm are adjacent elements.
  template <typename Use>
  __device__ void for_each_of_set(int64_t set, const Use& use) const {
    for (int64_t i = threadIdx.x; i < of_a_set; i += kImageThreads)
      if (batch)
        use(set, (i / pixels * channels + set) * pixels + i % pixels);
      else
        use((set * of_a_set + i) / pixels % channels, set * of_a_set + i);
  }
  // use(set, element) for this thread's elements of a channel
  template <typename Use>
  __device__ void for_each_of_channel(int64_t channel, const Use& use) const {
    for (int64_t i = threadIdx.x; i < images * pixels; i += kImageThreads) {
      const int64_t element = (i / pixels * channels + channel) * pixels + i % pixels;
      use(batch ? channel : element / of_a_set, element);
    }
  }
};

__device__ double sum_of_threads(double own) { return join_group<kImageThreads>(own, Plus()); }

template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    normalize_sets(PlaneSets sets, const T* x, const T* gain, const T* bias, T* y, SumOf<T>* means, SumOf<T>* rstds,
                   float epsilon) {
  using Sum = SumOf<T>;
  const auto count = static_cast<double>(sets.of_a_set);
  for (int64_t set = blockIdx.x; set < sets.sets; set += gridDim.x) {
    double total = 0, squares = 0;
    sets.for_each_of_set(set, [&](int64_t, int64_t at) { total += static_cast<double>(widen(x[at])); });
    const Sum mean = static_cast<Sum>(sum_of_threads(total) / count);
    sets.for_each_of_set(set, [&](int64_t, int64_t at) {
      const auto deviation = static_cast<double>(widen(x[at]) - mean);
      squares += deviation * deviation;
    });
    const Sum rstd = static_cast<Sum>(1 / sqrt(sum_of_threads(squares) / count + static_cast<double>(epsilon)));
    sets.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const Sum factor = rstd * Sum(widen(gain[channel]));
      y[at] = narrow<T>((Sum(widen(x[at])) - mean) * factor + Sum(widen(bias[channel])));
    });
    if (threadIdx.x != 0) continue;
    means[set] = mean;
    rstds[set] = rstd;
  }
}

template <typename T>
struct NormBackward {
  const T *dy, *x, *gain;
  const SumOf<T>*means, *rstds;
  T* dx;
};

// dx = rstd (g - mean of g - n mean of (g n)) with g = dy gain and n the normalized element; the means are over the set.
template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks) input_gradient_of_sets(PlaneSets sets, NormBackward<T> a) {
  using Sum = SumOf<T>;
  const auto count = static_cast<double>(sets.of_a_set);
  for (int64_t set = blockIdx.x; set < sets.sets; set += gridDim.x) {
    const Sum mean = a.means[set], rstd = a.rstds[set];
    double gradients = 0, products = 0;
    sets.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const Sum g = Sum(widen(a.dy[at])) * Sum(widen(a.gain[channel]));
      gradients += static_cast<double>(g);
      products += static_cast<double>(g * ((Sum(widen(a.x[at])) - mean) * rstd));
    });
    const Sum offset = static_cast<Sum>(sum_of_threads(gradients) / count);
    const Sum slope = static_cast<Sum>(sum_of_threads(products) / count);
    sets.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const Sum g = Sum(widen(a.dy[at])) * Sum(widen(a.gain[channel])), normalized = (Sum(widen(a.x[at])) - mean) * rstd;
      a.dx[at] = narrow<T>(rstd * (g - offset - normalized * slope));
    });
  }
}

// dgain and dbias may be null.
template <typename T, typename G>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    parameter_gradients_of_channels(PlaneSets sets, NormBackward<T> a, G* dgain, bool add_to_gain, G* dbias, bool add_to_bias) {
  using Sum = SumOf<T>;
  const auto store = [](G* out, double sum, bool accumulate) {
    if (out != nullptr) *out = narrow<G>(static_cast<SumOf<G>>(accumulate ? static_cast<double>(widen(*out)) + sum : sum));
  };
  for (int64_t channel = blockIdx.x; channel < sets.channels; channel += gridDim.x) {
    double gain = 0, bias = 0;
    sets.for_each_of_channel(channel, [&](int64_t set, int64_t at) {
      const Sum gradient = widen(a.dy[at]);
      bias += static_cast<double>(gradient);
      gain += static_cast<double>(gradient * ((Sum(widen(a.x[at])) - a.means[set]) * a.rstds[set]));
    });
    gain = sum_of_threads(gain);
    bias = sum_of_threads(bias);
    if (threadIdx.x != 0) continue;
    store(dgain == nullptr ? nullptr : dgain + channel, gain, add_to_gain);
    store(dbias == nullptr ? nullptr : dbias + channel, bias, add_to_bias);
  }
}

template <typename T>
struct GivenStatistics {
  const T *x, *gain, *bias, *mean, *variance;
  T* y;
};

template <typename T>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    normalize_with_given(GivenStatistics<T> a, int64_t channels, int64_t pixels, int64_t elements, float epsilon) {
  using Sum = SumOf<T>;
  for_each_own(elements, [&](int64_t at) {
    const int64_t channel = at / pixels % channels;
    const Sum rstd = Sum(1) / square_root(Sum(widen(a.variance[channel])) + static_cast<Sum>(epsilon));
    const Sum factor = rstd * Sum(widen(a.gain[channel]));
    a.y[at] = narrow<T>((Sum(widen(a.x[at])) - Sum(widen(a.mean[channel]))) * factor + Sum(widen(a.bias[channel])));
  });
}

template <typename S, typename G>
__global__ void __launch_bounds__(kImageThreads, kImageBlocks)
    add_to_sum(const S* values, int64_t sets, double epsilon, double elements, bool variance, Number scale, G* sum,
               bool accumulate) {
  for_each_own(sets, [&](int64_t set) {
    double value = static_cast<double>(values[set]);
    if (variance) {  // `values` are 1 / sqrt(variance + epsilon)
      value = fmax(1 / (value * value) - epsilon, 0.0);
      if (elements > 1) value = value * elements / (elements - 1);
    }
    const double added = read(scale) * value;
    sum[set] = narrow<G>(static_cast<SumOf<G>>(accumulate ? static_cast<double>(widen(sum[set])) + added : added));
  });
}

unsigned blocks_of(int64_t sets) {
  constexpr int64_t kMost = 1 << 16;
  return static_cast<unsigned>(std::min(sets, kMost));
}

// Adds the means or, if `variance`, the variances of the sets.
void add_statistic(const AddStatistics& args, bool variance, TensorView sum, bool accumulate, const Launch& launch) {
  const ConstTensorView values = variance ? args.rstd : args.mean;
  const int64_t sets = values.elements();
  if (sum.absent() || sets == 0) return;
  dispatch_device_float(sum.dtype, [&]<typename G>() {
    const auto add = [&]<typename S>() {
      TRIVET_LAUNCH((add_to_sum<S, G>), image_blocks(sets), kImageThreads, 0, launch.stream, data_of<S>(values), sets,
                    static_cast<double>(args.epsilon), static_cast<double>(args.elements), variance, args.scale,
                    data_of<G>(sum), accumulate);
    };
    if (values.dtype == DType::Float64)
      add.template operator()<double>();
    else
      add.template operator()<float>();
  });
}

}  // namespace

void compute(const ChannelNorm& args, const Launch& launch) {
  if (args.x.elements() == 0) return;
  const PlaneSets sets(args.x.shape, args.sets);
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    TRIVET_LAUNCH(&normalize_sets<T>, blocks_of(sets.sets), kImageThreads, 0, launch.stream, sets, data_of<T>(args.x),
                  data_of<T>(args.gain), data_of<T>(args.bias), data_of<T>(args.y), data_of<SumOf<T>>(args.mean),
                  data_of<SumOf<T>>(args.rstd), args.epsilon);
  });
}

void compute(const ChannelNormBackwardInput& args, const Launch& launch) {
  if (args.x.elements() == 0) return;
  const PlaneSets sets(args.x.shape, args.sets);
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    const NormBackward<T> all{data_of<T>(args.dy),          data_of<T>(args.x),           data_of<T>(args.gain),
                              data_of<SumOf<T>>(args.mean), data_of<SumOf<T>>(args.rstd), data_of<T>(args.dx)};
    TRIVET_LAUNCH(&input_gradient_of_sets<T>, blocks_of(sets.sets), kImageThreads, 0, launch.stream, sets, all);
  });
}

void compute(const ChannelNormBackwardWeight& args, const Launch& launch) {
  const PlaneSets sets(args.x.shape, args.sets);
  if (sets.channels == 0) return;
  const auto sum = [&](TensorView dgain, TensorView dbias) {
    const TensorView& some = dgain.absent() ? dbias : dgain;
    if (some.absent()) return;
    dispatch_gradient(args.x.dtype, some.dtype, [&]<typename T, typename G>() {
      const NormBackward<T> all{data_of<T>(args.dy),          data_of<T>(args.x),           nullptr,
                                data_of<SumOf<T>>(args.mean), data_of<SumOf<T>>(args.rstd), nullptr};
      TRIVET_LAUNCH((parameter_gradients_of_channels<T, G>), blocks_of(sets.channels), kImageThreads, 0, launch.stream, sets,
                    all, data_of<G>(dgain), args.accumulate_gain, data_of<G>(dbias), args.accumulate_bias);
    });
  };
  if (args.dgain.absent() || args.dbias.absent() || args.dgain.dtype == args.dbias.dtype) return sum(args.dgain, args.dbias);
  sum(args.dgain, {});
  sum({}, args.dbias);
}

void compute(const NormalizeWith& args, const Launch& launch) {
  const int64_t elements = args.x.elements(), channels = args.x.shape[1];
  if (elements == 0) return;
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    const GivenStatistics<T> all{data_of<T>(args.x),    data_of<T>(args.gain),     data_of<T>(args.bias),
                                 data_of<T>(args.mean), data_of<T>(args.variance), data_of<T>(args.y)};
    TRIVET_LAUNCH(&normalize_with_given<T>, image_blocks(elements), kImageThreads, 0, launch.stream, all, channels,
                  elements / (args.x.shape[0] * channels), elements, args.epsilon);
  });
}

void compute(const AddStatistics& args, const Launch& launch) {
  add_statistic(args, false, args.mean_sum, args.accumulate_mean, launch);
  add_statistic(args, true, args.variance_sum, args.accumulate_variance, launch);
}

}  // namespace trivet::kernels::cuda
