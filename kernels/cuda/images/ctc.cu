// Connectionist temporal classification by the forward-backward algorithm, with one block per sample; kernels/cpu/ctc.cpp has
// the formulas. The states of a step, or its classes, are divided among the threads of the block. Steps follow one another.
#include <cmath>

#include "kernels/ctc.h"
#include "kernels/cuda/images/planes.cuh"
#include "kernels/cuda/number.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kCtcThreads = 128, kResults = 3;
constexpr int32_t kBlank = 0;

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float log_of_1_plus(float x) { return log1pf(x); }
__device__ __forceinline__ double log_of_1_plus(double x) { return log1p(x); }

// log(exp(a) + exp(b))
template <typename Sum>
__device__ __forceinline__ Sum log_add(Sum a, Sum b) {
  const Sum larger = a < b ? b : a, smaller = a < b ? a : b;
  return smaller == -static_cast<Sum>(INFINITY) ? larger : larger + log_of_1_plus(exp_of(smaller - larger));
}

template <typename T>
struct CtcArguments {
  const T* logits;
  const int32_t* targets;
  T* dlogits;  // may be null
  int64_t steps, classes, places;
  Number gradient_scale;
  SumOf<T>*alpha, *beta, *log_sums;
  int32_t *states, *best;
  double* results;
};

// The data that the block of a sample reads and writes.
template <typename T>
struct CtcSample {
  using Sum = SumOf<T>;

  const T* logits;
  const int32_t* target;
  T* dlogits;
  int64_t steps, classes, places, most_states;
  Sum *alpha, *beta, *log_sums;
  int32_t *class_of, *best;
  double* results;

  __device__ CtcSample(const CtcArguments<T>& a, int64_t sample)
      : logits(a.logits + sample * a.steps * a.classes),
        target(a.targets + sample * a.places),
        dlogits(a.dlogits == nullptr ? nullptr : a.dlogits + sample * a.steps * a.classes),
        steps(a.steps),
        classes(a.classes),
        places(a.places),
        most_states(2 * a.places + 1),
        alpha(a.alpha + sample * a.steps * most_states),
        beta(a.beta + sample * 2 * most_states),
        log_sums(a.log_sums + sample * a.steps),
        class_of(a.states + sample * most_states),
        best(a.best + sample * a.steps),
        results(a.results + sample * kResults) {}

  __device__ Sum y(int64_t t, int64_t k) const { return widen(logits[t * classes + k]) - log_sums[t]; }
  // Checks whether a path may go from two states before to this one.
  __device__ bool may_skip_to(int64_t s) const { return s % 2 == 1 && s >= 3 && class_of[s] != class_of[s - 2]; }
  __device__ void fill_gradient(float value) const {
    for (int64_t e = threadIdx.x; dlogits != nullptr && e < steps * classes; e += kCtcThreads) dlogits[e] = narrow<T>(value);
  }
};

// Facts about a target that the first thread finds out and tells the others.
struct CtcTarget {
  int64_t states;
  bool counts, valid;
};

template <typename T>
__device__ CtcTarget read_target(const CtcSample<T>& s) {
  CtcTarget found{1, false, true};
  s.class_of[0] = kBlank;
  for (int64_t place = 0; place < s.places; ++place) {
    const int32_t value = s.target[place];
    found.counts = found.counts || value >= 0;
    found.valid = found.valid && value < s.classes;
    if (value <= kBlank) continue;
    s.class_of[found.states] = value;
    s.class_of[found.states + 1] = kBlank;
    found.states += 2;
  }
  return found;
}

// Each thread computes the sum and the most probable class of steps of its own.
template <typename T>
__device__ void read_steps(const CtcSample<T>& s) {
  using Sum = SumOf<T>;
  for (int64_t t = threadIdx.x; t < s.steps; t += kCtcThreads) {
    const T* row = s.logits + t * s.classes;
    int32_t best = 0;
    for (int32_t k = 1; k < s.classes; ++k)
      if (widen(row[best]) < widen(row[k])) best = k;
    const Sum largest = widen(row[best]);
    Sum sum = 0;
    for (int64_t k = 0; k < s.classes; ++k) sum += exp_of(widen(row[k]) - largest);
    s.log_sums[t] = largest + log_of(sum);
    s.best[t] = best;
  }
}

// Fills alpha and returns the logarithm of the target's probability.
template <typename T>
__device__ SumOf<T> run_forward(const CtcSample<T>& s, int64_t states) {
  using Sum = SumOf<T>;
  for (int64_t state = threadIdx.x; state < states; state += kCtcThreads)
    s.alpha[state] = state < 2 ? s.y(0, s.class_of[state]) : -static_cast<Sum>(INFINITY);
  for (int64_t t = 1; t < s.steps; ++t) {
    __syncthreads();
    const Sum* before = s.alpha + (t - 1) * s.most_states;
    for (int64_t state = threadIdx.x; state < states; state += kCtcThreads) {
      Sum sum = before[state];
      if (state >= 1) sum = log_add(sum, before[state - 1]);
      if (s.may_skip_to(state)) sum = log_add(sum, before[state - 2]);
      s.alpha[t * s.most_states + state] = sum + s.y(t, s.class_of[state]);
    }
  }
  __syncthreads();
  const Sum* last = s.alpha + (s.steps - 1) * s.most_states;
  const Sum all = states >= 2 ? log_add(last[states - 1], last[states - 2]) : last[states - 1];
  __syncthreads();  // now the gradient may overwrite alpha
  return all;
}

// beta of a step from that of the next one.
template <typename T>
__device__ SumOf<T> beta_of(const CtcSample<T>& s, const SumOf<T>* later, int64_t t, int64_t state, int64_t states) {
  using Sum = SumOf<T>;
  if (t == s.steps - 1) return state >= states - 2 ? Sum{0} : -static_cast<Sum>(INFINITY);
  const auto by_way_of = [&](int64_t next) { return later[next] + s.y(t + 1, s.class_of[next]); };
  Sum sum = by_way_of(state);
  if (state + 1 < states) sum = log_add(sum, by_way_of(state + 1));
  if (state + 2 < states && s.may_skip_to(state + 2)) sum = log_add(sum, by_way_of(state + 2));
  return sum;
}

// dlogits may be logits: nothing is overwritten before the last step back has read all of them.
template <typename T>
__device__ void write_gradient(const CtcSample<T>& s, int64_t states, SumOf<T> log_probability, SumOf<T> scale) {
  using Sum = SumOf<T>;
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    Sum* beta = s.beta + t % 2 * s.most_states;
    const Sum* later = s.beta + (t + 1) % 2 * s.most_states;
    for (int64_t state = threadIdx.x; state < states; state += kCtcThreads) {
      beta[state] = beta_of(s, later, t, state, states);
      s.alpha[t * s.most_states + state] = exp_of(s.alpha[t * s.most_states + state] + beta[state] - log_probability);
    }
    __syncthreads();
  }
  // alpha now has the probabilities that a path is in a state. A thread overwrites only logits that no other thread reads.
  for (int64_t t = 0; t < s.steps; ++t)
    for (int64_t k = threadIdx.x; k < s.classes; k += kCtcThreads) {
      Sum occupied = 0;
      for (int64_t state = 0; state < states; ++state)
        if (s.class_of[state] == k) occupied += s.alpha[t * s.most_states + state];
      s.dlogits[t * s.classes + k] = narrow<T>(scale * (exp_of(s.y(t, k)) - occupied));
    }
}

// Checks whether the most probable classes spell the target.
template <typename T>
__device__ bool is_spelled(const CtcSample<T>& s, int64_t states) {
  int64_t matched = 0;
  int32_t before = kBlank;
  for (int64_t t = 0; t < s.steps; ++t) {
    const int32_t best = s.best[t];
    if (best != before && best != kBlank) {
      if (2 * matched + 1 >= states || s.class_of[2 * matched + 1] != best) return false;
      ++matched;
    }
    before = best;
  }
  return 2 * matched + 1 == states;
}

template <typename T>
__global__ void __launch_bounds__(kCtcThreads) run_samples(CtcArguments<T> a) {
  using Sum = SumOf<T>;
  const CtcSample<T> s(a, blockIdx.x);
  __shared__ CtcTarget target;
  if (threadIdx.x == 0) {
    target = read_target(s);
    s.results[0] = target.valid ? 0 : NAN;
    s.results[1] = target.counts ? 1 : 0;
    s.results[2] = 0;
  }
  read_steps(s);
  __syncthreads();
  if (!target.counts || !target.valid) return s.fill_gradient(target.valid ? 0.0f : NAN);
  const Sum log_probability = run_forward(s, target.states);
  if (threadIdx.x == 0) {
    s.results[0] = -static_cast<double>(log_probability);
    s.results[2] = is_spelled(s, target.states) ? 1 : 0;
  }
  if (s.dlogits == nullptr) return;
  if (log_probability == -static_cast<Sum>(INFINITY)) return s.fill_gradient(0);
  write_gradient(s, target.states, log_probability, static_cast<Sum>(read(a.gradient_scale)));
}

// One block; each thread adds samples of its own.
__global__ void __launch_bounds__(kCtcThreads)
    add_samples(const double* results, int64_t samples, double* loss, double* correct) {
  double sums[kResults] = {};
  for (int64_t sample = threadIdx.x; sample < samples; sample += kCtcThreads)
    for (int i = 0; i < kResults; ++i) sums[i] += results[sample * kResults + i];
  for (double& sum : sums) sum = join_group<kCtcThreads>(sum, Plus());
  if (threadIdx.x != 0) return;
  if (loss != nullptr) loss[0] += sums[0], loss[1] += sums[1];
  if (correct != nullptr) *correct += sums[2];
}

template <typename T>
CtcArguments<T> arguments_of(const Ctc& args) {
  const CtcScratch scratch(args.logits, args.targets);
  auto* memory = static_cast<std::byte*>(args.scratch.data);
  return {.logits = data_of<T>(args.logits),
          .targets = data_of<int32_t>(args.targets),
          .dlogits = data_of<T>(args.dlogits),
          .steps = args.logits.shape[1],
          .classes = args.logits.shape[2],
          .places = args.targets.shape[1],
          .gradient_scale = args.gradient_scale,
          .alpha = reinterpret_cast<SumOf<T>*>(memory + scratch.alpha),
          .beta = reinterpret_cast<SumOf<T>*>(memory + scratch.beta),
          .log_sums = reinterpret_cast<SumOf<T>*>(memory + scratch.log_sums),
          .states = reinterpret_cast<int32_t*>(memory + scratch.states),
          .best = reinterpret_cast<int32_t*>(memory + scratch.best),
          .results = reinterpret_cast<double*>(memory + scratch.results)};
}

}  // namespace

void compute(const Ctc& args, const Launch& launch) {
  const int64_t samples = args.logits.shape[0];
  if (samples == 0) return;
  const double* results = nullptr;
  dispatch_device_float(args.logits.dtype, [&]<typename T>() {
    const CtcArguments<T> arguments = arguments_of<T>(args);
    results = arguments.results;
    TRIVET_LAUNCH(&run_samples<T>, static_cast<unsigned>(samples), kCtcThreads, 0, launch.stream, arguments);
  });
  TRIVET_LAUNCH(&add_samples, 1, kCtcThreads, 0, launch.stream, results, samples, data_of<double>(args.loss),
                data_of<double>(args.correct));
}

}  // namespace trivet::kernels::cuda
