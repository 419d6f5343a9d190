// Group norm and batch norm of images. Each set of elements that are normalized together, or each channel, is done by one
// thread. A set consists of runs, adjacent elements of one channel; a run is summed in interleaved lanes, and the sums of runs
// are added in double, in order.
#include <algorithm>
#include <cmath>

#include "kernels/channel_norm.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

namespace trivet::kernels::cpu {
namespace {

// The sum of term(0) .. term(count - 1).
template <typename Sum, typename Term>
double sum_of_run(int64_t count, const Term& term) {
  constexpr int64_t kLanes = 16;
  Sum lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  for (; i < count; ++i) lanes[i % kLanes] += term(i);
  double sum = 0;
  for (const Sum lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// The runs of sets and of channels.
class Runs {
 public:
  Runs(const Shape& x, const NormSets& sets)
      : images_(x[0]), channels_(x[1]), sets_(sets), length_(x[0] * x[1] == 0 ? 0 : x.elements() / (x[0] * x[1])) {}

  int64_t length() const { return length_; }
  int64_t set_of(int64_t image, int64_t channel) const {
    if (sets_.groups == NormSets::kBatch) return channel;
    return image * sets_.groups + channel / (channels_ / sets_.groups);
  }
  // use(channel, first element) for each run of a set
  template <typename Use>
  void for_each_of_set(int64_t set, const Use& use) const {
    if (sets_.groups == NormSets::kBatch) {
      for (int64_t image = 0; image < images_; ++image) use(set, (image * channels_ + set) * length_);
      return;
    }
    const int64_t of_a_group = channels_ / sets_.groups, image = set / sets_.groups;
    const int64_t first = set % sets_.groups * of_a_group;
    for (int64_t c = first; c < first + of_a_group; ++c) use(c, (image * channels_ + c) * length_);
  }
  // use(set, first element) for each run of a channel
  template <typename Use>
  void for_each_of_channel(int64_t channel, const Use& use) const {
    for (int64_t image = 0; image < images_; ++image) use(set_of(image, channel), (image * channels_ + channel) * length_);
  }

 private:
  int64_t images_, channels_;
  NormSets sets_;
  int64_t length_;
};

template <typename Body>
void for_each_set(const Shape& x, const NormSets& sets, int threads, const Body& body) {
  for_each_range(sets.count(x), threads, 1, sets.elements(x), [&](int64_t begin, int64_t end) {
    for (int64_t set = begin; set < end; ++set) body(set);
  });
}

template <typename T>
void normalize(const ChannelNorm& args, int threads) {
  using Sum = SumOf<T>;
  const Runs runs(args.x.shape, args.sets);
  const double count = static_cast<double>(args.sets.elements(args.x.shape));
  const T *x = args.x.as<T>(), *gain = args.gain.as<T>(), *bias = args.bias.as<T>();
  for_each_set(args.x.shape, args.sets, threads, [&](int64_t set) {
    double total = 0, squares = 0;
    runs.for_each_of_set(set, [&](int64_t, int64_t at) {
      total += sum_of_run<Sum>(runs.length(), [&](int64_t i) { return widen<Sum>(x[at + i]); });
    });
    const Sum mean = static_cast<Sum>(total / count);
    runs.for_each_of_set(set, [&](int64_t, int64_t at) {
      squares += sum_of_run<Sum>(runs.length(), [&](int64_t i) {
        const Sum deviation = widen<Sum>(x[at + i]) - mean;
        return deviation * deviation;
      });
    });
    const Sum rstd = static_cast<Sum>(1 / std::sqrt(squares / count + static_cast<double>(args.epsilon)));
    runs.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const Sum factor = rstd * widen<Sum>(gain[channel]), shift = widen<Sum>(bias[channel]);
      T* y = args.y.as<T>() + at;
      for (int64_t i = 0; i < runs.length(); ++i) y[i] = narrow<T>((widen<Sum>(x[at + i]) - mean) * factor + shift);
    });
    args.mean.as<Sum>()[set] = mean;
    args.rstd.as<Sum>()[set] = rstd;
  });
}

// dx = rstd (g - mean of g - n mean of (g n)) with g = dy gain and n the normalized element; the means are over the set.
template <typename T>
void input_gradient(const ChannelNormBackwardInput& args, int threads) {
  using Sum = SumOf<T>;
  const Runs runs(args.x.shape, args.sets);
  const double count = static_cast<double>(args.sets.elements(args.x.shape));
  const T *x = args.x.as<T>(), *dy = args.dy.as<T>(), *gain = args.gain.as<T>();
  for_each_set(args.x.shape, args.sets, threads, [&](int64_t set) {
    const Sum mean = args.mean.as<Sum>()[set], rstd = args.rstd.as<Sum>()[set];
    double gradients = 0, products = 0;
    runs.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const double factor = static_cast<double>(widen<Sum>(gain[channel]));
      gradients += factor * sum_of_run<Sum>(runs.length(), [&](int64_t i) { return widen<Sum>(dy[at + i]); });
      products += factor * sum_of_run<Sum>(runs.length(), [&](int64_t i) {
                    return widen<Sum>(dy[at + i]) * ((widen<Sum>(x[at + i]) - mean) * rstd);
                  });
    });
    const Sum offset = static_cast<Sum>(gradients / count), slope = static_cast<Sum>(products / count);
    runs.for_each_of_set(set, [&](int64_t channel, int64_t at) {
      const Sum factor = widen<Sum>(gain[channel]);
      T* dx = args.dx.as<T>() + at;
      for (int64_t i = 0; i < runs.length(); ++i) {
        const Sum normalized = (widen<Sum>(x[at + i]) - mean) * rstd;
        dx[i] = narrow<T>(rstd * (widen<Sum>(dy[at + i]) * factor - offset - normalized * slope));
      }
    });
  });
}

void store(TensorView out, int64_t element, double value, bool accumulate) {
  if (out.absent()) return;
  dispatch_float(out.dtype, [&]<typename G>() {
    G& to = out.as<G>()[element];
    to = narrow<G>(static_cast<SumOf<G>>(accumulate ? static_cast<double>(widen<SumOf<G>>(to)) + value : value));
  });
}

template <typename T>
void weight_gradient(const ChannelNormBackwardWeight& args, int threads) {
  using Sum = SumOf<T>;
  const Runs runs(args.x.shape, args.sets);
  const T *x = args.x.as<T>(), *dy = args.dy.as<T>();
  const int64_t channels = args.x.shape[1];
  for_each_range(channels, threads, 1, args.x.elements() / std::max<int64_t>(channels, 1), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      double dgain = 0, dbias = 0;
      runs.for_each_of_channel(channel, [&](int64_t set, int64_t at) {
        const Sum mean = args.mean.as<Sum>()[set], rstd = args.rstd.as<Sum>()[set];
        dbias += sum_of_run<Sum>(runs.length(), [&](int64_t i) { return widen<Sum>(dy[at + i]); });
        dgain += sum_of_run<Sum>(runs.length(),
                                 [&](int64_t i) { return widen<Sum>(dy[at + i]) * ((widen<Sum>(x[at + i]) - mean) * rstd); });
      });
      store(args.dgain, channel, dgain, args.accumulate_gain);
      store(args.dbias, channel, dbias, args.accumulate_bias);
    }
  });
}

template <typename T>
void normalize_with(const NormalizeWith& args, int threads) {
  using Sum = SumOf<T>;
  const Runs runs(args.x.shape, {});
  for_each_set(args.x.shape, {}, threads, [&](int64_t channel) {
    const Sum mean = widen<Sum>(args.mean.as<T>()[channel]), shift = widen<Sum>(args.bias.as<T>()[channel]);
    const Sum rstd = Sum(1) / std::sqrt(widen<Sum>(args.variance.as<T>()[channel]) + static_cast<Sum>(args.epsilon));
    const Sum factor = rstd * widen<Sum>(args.gain.as<T>()[channel]);
    runs.for_each_of_channel(channel, [&](int64_t, int64_t at) {
      const T* x = args.x.as<T>() + at;
      T* y = args.y.as<T>() + at;
      for (int64_t i = 0; i < runs.length(); ++i) y[i] = narrow<T>((widen<Sum>(x[i]) - mean) * factor + shift);
    });
  });
}

}  // namespace

void compute(const ChannelNorm& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { normalize<T>(args, threads); });
}

void compute(const ChannelNormBackwardInput& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { input_gradient<T>(args, threads); });
}

void compute(const ChannelNormBackwardWeight& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { weight_gradient<T>(args, threads); });
}

void compute(const NormalizeWith& args, int threads) {
  dispatch_float(args.x.dtype, [&]<typename T>() { normalize_with<T>(args, threads); });
}

void compute(const AddStatistics& args, int) {
  const double scale = args.scale.value(), count = static_cast<double>(args.elements);
  dispatch_float(args.mean.dtype, [&]<typename T>() {
    for (int64_t set = 0; set < args.mean.elements(); ++set) {
      const double rstd = static_cast<double>(widen<SumOf<T>>(args.rstd.as<T>()[set]));
      const double variance = std::max(1 / (rstd * rstd) - static_cast<double>(args.epsilon), 0.0);
      const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
      store(args.mean_sum, set, scale * static_cast<double>(widen<SumOf<T>>(args.mean.as<T>()[set])), args.accumulate_mean);
      store(args.variance_sum, set, scale * unbiased, args.accumulate_variance);
    }
  });
}

}  // namespace trivet::kernels::cpu
