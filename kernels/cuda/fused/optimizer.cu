// Optimizer steps: one pass over all tensors, with the CPU's arithmetic. The verdict on an update is read from device memory,
// so that the host need not know it.
#include <algorithm>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/optimizer_scalars.h"
#include "kernels/verdict.h"

namespace trivet::kernels::cuda {
namespace {

constexpr int kPack = kPackOf<float>;

// The verdict of a call. If it is absent (null), the factor is 1 and the update is applied.
struct Verdict {
  const double* values;

  __device__ bool applies() const { return values == nullptr || values[kApply] != 0; }
  __device__ double factor() const { return values == nullptr ? 1.0 : values[kFactor]; }
};

// The weights and, if there is one, their copy in another type.
struct Weights {
  float* master;
  void* copy;
  DType copy_type;

  template <int N>
  __device__ void store(int64_t first, const Pack<float, N>& values) const {
    store_pack(master + first, values);
    if (copy == nullptr) return;
    if (copy_type == DType::BFloat16) return store_copy<__nv_bfloat16>(first, values);
    if (copy_type == DType::Float16) return store_copy<__half>(first, values);
    if (copy_type == DType::Float32) return store_copy<float>(first, values);
    store_copy<double>(first, values);
  }

 private:
  template <typename T, int N>
  __device__ void store_copy(int64_t first, const Pack<float, N>& values) const {
    Pack<T, N> rounded;
#pragma unroll
    for (int i = 0; i < N; ++i) rounded[i] = narrow<T>(values[i]);
    store_pack(static_cast<T*>(copy) + first, rounded);
  }
};

Weights weights_of(TensorView master, TensorView copy_out) { return {data_of<float>(master), copy_out.data, copy_out.dtype}; }

// One thread computes the scalars of a call for its whole block, because that arithmetic is in double.
template <typename Make>
__device__ auto made_once(const Make& make) {
  __shared__ decltype(make()) made;
  if (threadIdx.x == 0) made = make();
  __syncthreads();
  return made;
}

template <typename G, typename Numbers, typename Scalars, int kStates>
struct Step : ElementOp {
  Numbers numbers;
  Scalars scalars;
  Verdict verdict;
  const G* gradient;
  Weights weights;
  float* states[std::max(kStates, 1)];

  template <int N>
  struct Loaded {
    Pack<G, N> gradient;
    Pack<float, N> master, states[std::max(kStates, 1)];
  };
  __device__ bool begin() {
    if (!verdict.applies()) return false;
    scalars = made_once([&] { return kernels::scalars(numbers, verdict.factor(), ReadNumber{}); });
    return true;
  }
  template <int N>
  __device__ Loaded<N> load(int64_t first) const {
    Loaded<N> loaded;
    loaded.gradient = load_pack<N>(gradient + first);
    loaded.master = load_pack<N>(weights.master + first);
#pragma unroll
    for (int s = 0; s < kStates; ++s) loaded.states[s] = load_pack<N>(states[s] + first);
    return loaded;
  }
  template <int N>
  __device__ void store(int64_t first, const Loaded<N>& loaded) const {
    weights.store(first, loaded.master);
#pragma unroll
    for (int s = 0; s < kStates; ++s) store_pack(states[s] + first, loaded.states[s]);
  }
};

// The arithmetic on one element is the same, line by line, as in the CPU's loops (kernels/cpu/fused/optimizer_loops.inl).

__device__ __forceinline__ void moments_of(const AdamScalars& s, float g, float& m, float& v) {
  m = s.beta1 * m + s.one_minus_beta1 * g;
  v = s.beta2 * v + s.one_minus_beta2 * (g * g);
}
__device__ __forceinline__ float direction(const AdamScalars& s, float m, float v) {
  return m / (sqrtf(v) * s.inverse_root_correction2 + s.epsilon);
}

template <typename G>
struct AdamStep : Step<G, AdamNumbers, AdamScalars, 2> {
  template <int N>
  using Loaded = typename Step<G, AdamNumbers, AdamScalars, 2>::template Loaded<N>;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const AdamScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = widen(x.gradient[i]) * s.gradient_scale + s.l2_decay * x.master[i];
      moments_of(s, g, x.states[0][i], x.states[1][i]);
      x.master[i] = x.master[i] * s.keep - s.step_size * direction(s, x.states[0][i], x.states[1][i]);
    }
    this->store(first, x);
  }
};

template <typename G>
struct LambStep : Step<G, AdamNumbers, AdamScalars, 2> {
  template <int N>
  using Loaded = typename Step<G, AdamNumbers, AdamScalars, 2>::template Loaded<N>;
  float* update;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const AdamScalars& s = this->scalars;
    Pack<float, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      moments_of(s, widen(x.gradient[i]) * s.gradient_scale, x.states[0][i], x.states[1][i]);
      out[i] = s.step_size * direction(s, x.states[0][i], x.states[1][i]) + s.l2_decay * x.master[i];
    }
    store_pack(this->states[0] + first, x.states[0]);
    store_pack(this->states[1] + first, x.states[1]);
    store_pack(update + first, out);
  }
};

// kMomentum: states[0] is the buffer.
template <typename G, bool kMomentum>
struct SgdStep : Step<G, SgdNumbers, SgdScalars, kMomentum ? 1 : 0> {
  template <int N>
  using Loaded = typename Step<G, SgdNumbers, SgdScalars, kMomentum ? 1 : 0>::template Loaded<N>;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const SgdScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = widen(x.gradient[i]) * s.gradient_scale + s.decay * x.master[i];
      if constexpr (kMomentum) {
        const float previous = s.first_step ? 0.0f : x.states[0][i];  // not initialized on the first step
        const float b = s.momentum * previous + s.gradient_weight * g;
        x.states[0][i] = b;
        x.master[i] -= s.lr * (s.direct * g + s.buffered * b);
      } else {
        x.master[i] -= s.lr * g;
      }
    }
    this->store(first, x);
  }
};

template <typename G>
struct LionStep : Step<G, LionNumbers, LionScalars, 1> {
  template <int N>
  using Loaded = typename Step<G, LionNumbers, LionScalars, 1>::template Loaded<N>;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const LionScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = widen(x.gradient[i]) * s.gradient_scale, m = x.states[0][i];
      const float blend = s.beta1 * m + s.one_minus_beta1 * g;
      const float sign = blend > 0.0f ? 1.0f : blend < 0.0f ? -1.0f : blend;  // NaN stays NaN
      x.master[i] -= s.lr * (sign + s.decay * x.master[i]);
      x.states[0][i] = s.beta2 * m + s.one_minus_beta2 * g;
    }
    this->store(first, x);
  }
};

template <typename G>
struct AdagradStep : Step<G, AdagradNumbers, AdagradScalars, 1> {
  template <int N>
  using Loaded = typename Step<G, AdagradNumbers, AdagradScalars, 1>::template Loaded<N>;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const AdagradScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = widen(x.gradient[i]) * s.gradient_scale + s.decay * x.master[i];
      const float sum = x.states[0][i] + g * g;
      x.states[0][i] = sum;
      x.master[i] -= s.lr * (g / (sqrtf(sum) + s.epsilon));
    }
    this->store(first, x);
  }
};

// The buffer takes the place of the weights.
template <typename G>
struct MomentumStep : Step<G, MomentumNumbers, MomentumScalars, 0> {
  template <int N>
  using Loaded = typename Step<G, MomentumNumbers, MomentumScalars, 0>::template Loaded<N>;
  float* out;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const MomentumScalars& s = this->scalars;
    Pack<float, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float g = widen(x.gradient[i]) * s.gradient_scale, b = s.momentum * x.master[i] + g;
      x.master[i] = b;
      result[i] = s.direct * g + s.buffered * b;
    }
    store_pack(this->weights.master + first, x.master);
    store_pack(out + first, result);
  }
};

template <typename G>
struct ApplyStep : Step<G, ApplyNumbers, ApplyScalars, 0> {
  template <int N>
  using Loaded = typename Step<G, ApplyNumbers, ApplyScalars, 0>::template Loaded<N>;
  const int64_t* square_sums;
  __device__ bool begin() {
    if (!this->verdict.applies()) return false;
    this->scalars = made_once([&] {
      const ApplyNumbers& n = this->numbers;
      const double ratio = square_sums == nullptr ? 1.0 : trust_ratio(square_sums, n.min_ratio, n.max_ratio);
      return kernels::scalars(n, ratio, ReadNumber{});
    });
    return true;
  }
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const ApplyScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) x.master[i] = x.master[i] * s.keep - s.factor * widen(x.gradient[i]);
    this->store(first, x);
  }
};

template <typename G>
struct RunningAverageStep : Step<G, RunningAverageNumbers, ApplyScalars, 0> {
  using Base = Step<G, RunningAverageNumbers, ApplyScalars, 0>;
  template <int N>
  using Loaded = typename Base::template Loaded<N>;
  template <int N>
  __device__ void finish(int64_t first, Loaded<N> x) const {
    const ApplyScalars& s = this->scalars;
#pragma unroll
    for (int i = 0; i < N; ++i) x.master[i] = x.master[i] * s.keep - s.factor * widen(x.gradient[i]);
    this->store(first, x);
  }
};

bool aligned_copy(TensorView copy) {
  const auto bytes = static_cast<uintptr_t>(std::min<int64_t>(kAccessBytes, kPack * size_of(copy.dtype)));
  return reinterpret_cast<uintptr_t>(copy.data) % bytes == 0;
}

// Sets what all steps have in common. Returns whether packs may start at all of its addresses.
template <typename Step, typename Args>
bool set_up(Step& step, const Args& args, ConstTensorView gradient, TensorView master, TensorView copy_out,
            std::initializer_list<TensorView> states) {
  step.numbers = numbers(args);
  step.verdict = {data_of<double>(args.verdict)};
  step.gradient = static_cast<decltype(step.gradient)>(gradient.data);
  step.weights = weights_of(master, copy_out);
  bool aligned = aligned_for_packs<kPack>(step.gradient, step.weights.master) && aligned_copy(copy_out);
  float** place = step.states;
  for (const TensorView& state : states) {
    *place = data_of<float>(state);
    aligned = aligned && aligned_for_packs<kPack>(*place);
    ++place;
  }
  return aligned;
}

// Gradients and updates are float32, bfloat16 or float16 (kernels/optimizers.cpp).
template <typename Body>
void dispatch_update(DType gradient, const Body& body) {
  if (gradient == DType::BFloat16) return body.template operator()<__nv_bfloat16>();
  if (gradient == DType::Float16) return body.template operator()<__half>();
  body.template operator()<float>();
}

// `rest` sets what only some steps have, and returns whether it is aligned.
template <template <typename> typename StepOf, typename Args, typename Rest>
void launch_step(const Args& args, ConstTensorView gradient, TensorView master, TensorView copy_out,
                 std::initializer_list<TensorView> states, const Launch& launch, const Rest& rest) {
  dispatch_update(gradient.dtype, [&]<typename G>() {
    StepOf<G> step;
    bool aligned = set_up(step, args, gradient, master, copy_out, states);
    aligned = rest(step) && aligned;
    launch_elements<kPack, 1>(step, gradient.elements(), aligned, launch);
  });
}

// Counts the updates at the front of the list that have gradients of one type.
size_t of_one_type(std::span<const Adam> updates) {
  const auto same = [&](const Adam& update) { return update.gradient.dtype == updates.front().gradient.dtype; };
  return static_cast<size_t>(std::find_if_not(updates.begin(), updates.end(), same) - updates.begin());
}

template <template <typename> typename StepOf, typename Args>
void launch_step(const Args& args, std::initializer_list<TensorView> states, const Launch& launch) {
  launch_step<StepOf>(args, args.gradient, args.master, args.copy_out, states, launch, [](auto&) { return true; });
}

template <typename G>
using PlainSgdStep = SgdStep<G, false>;
template <typename G>
using SgdStepWithMomentum = SgdStep<G, true>;

}  // namespace

void compute(const AdamUpdates& list, const Launch& launch) {
  std::span<const Adam> updates = list.updates;
  while (!updates.empty()) {
    const std::span<const Adam> some = updates.first(of_one_type(updates));
    dispatch_update(some.front().gradient.dtype, [&]<typename G>() {
      launch_ranges<kPack, AdamStep<G>>(
          some.size(),
          [&](size_t i, auto& range) {
            const Adam& args = some[i];
            range.count = args.gradient.elements();
            range.aligned = set_up(range.op, args, args.gradient, args.master, args.copy_out, {args.moment1, args.moment2});
          },
          launch);
    });
    updates = updates.subspan(some.size());
  }
}

void compute(const Sgd& args, const Launch& launch) {
  if (args.momentum_buffer.absent())
    launch_step<PlainSgdStep>(args, {}, launch);
  else
    launch_step<SgdStepWithMomentum>(args, {args.momentum_buffer}, launch);
}

void compute(const Lion& args, const Launch& launch) { launch_step<LionStep>(args, {args.moment}, launch); }

void compute(const Adagrad& args, const Launch& launch) { launch_step<AdagradStep>(args, {args.sum_of_squares}, launch); }

void compute(const LambUpdate& args, const Launch& launch) {
  const TensorView master{const_cast<void*>(args.master.data), args.master.dtype, args.master.shape};  // read only
  launch_step<LambStep>(args, args.gradient, master, {}, {args.moment1, args.moment2}, launch, [&](auto& step) {
    step.update = data_of<float>(args.update);
    return aligned_for_packs<kPack>(step.update);
  });
}

void compute(const MomentumUpdate& args, const Launch& launch) {
  launch_step<MomentumStep>(args, args.gradient, args.momentum_buffer, {}, {}, launch, [&](auto& step) {
    step.out = data_of<float>(args.out);
    return aligned_for_packs<kPack>(step.out);
  });
}

void compute(const RunningAverage& args, const Launch& launch) { launch_step<RunningAverageStep>(args, {}, launch); }

void compute(const ApplyUpdate& args, const Launch& launch) {
  launch_step<ApplyStep>(args, args.update, args.master, args.copy_out, {}, launch, [&](auto& step) {
    step.square_sums = data_of<int64_t>(args.square_sums);
    return true;
  });
}

}  // namespace trivet::kernels::cuda
