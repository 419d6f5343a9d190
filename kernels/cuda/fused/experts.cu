// Choosing experts, ordering and moving their rows, and their activation. A warp has a token's experts, or the row of an
// activation's gradient. Choices, weights, orders and sums of rows have the CPU's bits (weights in float32); the rest is close.
//
// Not yet fast: the order is made by a block for each expert that reads all choices twice, which takes as long as the rest of a
// router from some 100 experts on.
#include <limits>

#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsOfBlock = 4;
constexpr int64_t kSharedBytes = 48 << 10;  // as much as a block may have without asking

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_of_thread() { return static_cast<int>(threadIdx.x) / kWarp; }

// The CPU's exponential, bit for bit (kernels/cpu/fused/numbers.inl): with another one, experts whose scores nearly tie could
// be chosen differently.
__device__ __forceinline__ float exponential_of_cpu(float x) {
  const float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float k = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = (clamped - k * 0.693145752f) - k * 1.42860677e-6f;
  float p = 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const int power = k == k ? static_cast<int>(k) : 0, half = power >> 1;
  const float first = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float second = std::bit_cast<float>(static_cast<uint32_t>(power - half + 127) << 23);
  return p * first * second;
}
__device__ __forceinline__ double exponential_of_cpu(double x) { return exp(x); }

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
template <typename Sum>
__device__ __forceinline__ bool is_nan(Sum x) {
  return x != x;
}

template <typename Sum>
__device__ __forceinline__ Sum sigmoid(Sum z) {
  const Sum small = exponential_of_cpu(z < 0 ? z : -z);
  return (z < 0 ? small : Sum(1)) / (Sum(1) + small);
}

// The sum of values[count] in the order of the CPU's lane_sum (kernels/cpu/fused/numbers.inl).
template <typename Sum>
__device__ Sum lane_sum(const Sum* values, int count) {
  Sum sum = 0;
  for (int i = lane_of_thread() % 16; i < count; i += 16) sum += values[i];
#pragma unroll
  for (unsigned step = 8; step > 0; step /= 2) sum += __shfl_down_sync(kAllLanes, sum, step);
  return __shfl_sync(kAllLanes, sum, 0);
}

// Calls body(i) for the lane's share of [0, count).
template <typename Body>
__device__ __forceinline__ void for_each_of_lane(int count, const Body& body) {
  for (int i = lane_of_thread(); i < count; i += kWarp) body(i);
}

// Turns a token's logits p[experts], in shared memory, into scores. Returns logsumexp of the logits with softmax. All lanes see
// the results.
template <typename Sum>
__device__ Sum make_scores(bool sigmoids, Sum* p, int experts) {
  Sum log_sum_exp = 0;
  if (sigmoids) {
    for_each_of_lane(experts, [&](int e) { p[e] = sigmoid(p[e]); });
  } else {
    Sum most = -std::numeric_limits<Sum>::infinity();
    for_each_of_lane(experts, [&](int e) { most = Maximum{}(most, p[e]); });
    most = join_warp(most, Maximum{});
    for_each_of_lane(experts, [&](int e) { p[e] = exponential_of_cpu(p[e] - most); });
    __syncwarp();
    const Sum sum = lane_sum(p, experts);
    for_each_of_lane(experts, [&](int e) { p[e] /= sum; });
    log_sum_exp = most + logarithm(sum);
  }
  __syncwarp();
  return log_sum_exp;
}

// An expert or a group. Larger values come first, and of equal ones lower numbers.
template <typename Sum>
struct Candidate {
  Sum value;
  int number;
  __device__ __forceinline__ bool before(const Candidate& other) const {
    return value != other.value ? value > other.value : number < other.number;
  }
};

// Returns the last of the `chosen` candidates that come first. Those whose value is NaN do not take part.
template <typename Sum>
__device__ Candidate<Sum> last_of_best(const Sum* values, int count, int chosen) {
  constexpr Sum kInfinity = std::numeric_limits<Sum>::infinity();
  Candidate<Sum> last{kInfinity, -1};
  for (int k = 0; k < chosen; ++k) {
    Candidate<Sum> next{-kInfinity, std::numeric_limits<int>::max()};
    for_each_of_lane(count, [&](int i) {
      const Candidate<Sum> here{values[i], i};
      if (here.value == here.value && last.before(here) && here.before(next)) next = here;
    });
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const Candidate<Sum> other{__shfl_xor_sync(kAllLanes, next.value, mask), __shfl_xor_sync(kAllLanes, next.number, mask)};
      if (other.before(next)) next = other;
    }
    last = next;
  }
  return last;
}

struct RouterSizes {
  int64_t tokens;
  int experts, chosen, groups, groups_per_token;
  bool sigmoids, normalize;

  RouterSizes(ConstTensorView logits, ConstTensorView choices, const ExpertRule& rule)
      : tokens(logits.shape[0]),
        experts(static_cast<int>(logits.shape[1])),
        chosen(static_cast<int>(choices.shape[1])),
        groups(static_cast<int>(rule.groups)),
        groups_per_token(static_cast<int>(rule.groups_per_token)),
        sigmoids(rule.score == ExpertScore::Sigmoid),
        normalize(rule.normalize) {}
  template <typename Sum>
  __device__ __forceinline__ Sum start_of_sum() const {
    return sigmoids ? Sum(1e-20) : Sum(0);
  }
};

// Experts of other groups than those chosen no longer take part.
template <typename Sum>
__device__ void keep_groups(const RouterSizes& sizes, Sum* candidates, Sum* sums_of_groups) {
  const int size = sizes.experts / sizes.groups;
  for_each_of_lane(sizes.groups, [&](int group) {
    Sum first = -std::numeric_limits<Sum>::infinity(), second = first;
    for (int e = group * size; e < (group + 1) * size; ++e) {
      const Sum value = candidates[e];
      second = Maximum{}(second, value < first ? value : first);
      first = Maximum{}(first, value);
    }
    sums_of_groups[group] = size > 1 ? first + second : first;
  });
  __syncwarp();
  const Candidate<Sum> last = last_of_best(sums_of_groups, sizes.groups, sizes.groups_per_token);
  for_each_of_lane(sizes.experts, [&](int e) {
    if (last.before({sums_of_groups[e / size], e / size})) candidates[e] = std::numeric_limits<Sum>::quiet_NaN();
  });
  __syncwarp();
}

// The bits of lanes whose expert first + lane is chosen: those up to `last`.
template <typename Sum>
__device__ __forceinline__ unsigned chosen_lanes(const Sum* candidates, int experts, int first, const Candidate<Sum>& last) {
  const int e = first + lane_of_thread();
  const bool is_chosen = e < experts && candidates[e] == candidates[e] && !last.before({candidates[e], e});
  return __ballot_sync(kAllLanes, is_chosen);
}

template <typename Sum>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp)
    choose(RouterSizes sizes, const Sum* logits, const Sum* bias, int32_t* chosen, Sum* weights, Sum scale) {
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const int64_t token = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp_of_thread();
  if (token >= sizes.tokens) return;
  Sum* const p = shared + warp_of_thread() * (2 * sizes.experts + sizes.groups);
  Sum* const candidates = p + sizes.experts;
  logits += token * sizes.experts;
  for_each_of_lane(sizes.experts, [&](int e) { p[e] = is_nan(logits[e]) ? -std::numeric_limits<Sum>::infinity() : logits[e]; });
  make_scores(sizes.sigmoids, p, sizes.experts);
  for_each_of_lane(sizes.experts, [&](int e) {
    if (is_nan(logits[e])) p[e] = logits[e];
    const Sum biased = p[e] + (bias ? bias[e] : Sum(0));
    candidates[e] = is_nan(biased) ? -std::numeric_limits<Sum>::infinity() : biased;
  });
  __syncwarp();
  if (sizes.groups > sizes.groups_per_token) keep_groups(sizes, candidates, candidates + sizes.experts);
  const Candidate<Sum> last = last_of_best(candidates, sizes.experts, sizes.chosen);
  Sum sum = sizes.start_of_sum<Sum>();
  for (int first = 0; first < sizes.experts; first += kWarp)
    for (unsigned lanes = chosen_lanes(candidates, sizes.experts, first, last); lanes != 0; lanes &= lanes - 1)
      sum += p[first + __ffs(static_cast<int>(lanes)) - 1];
  int64_t place = token * sizes.chosen;
  for (int first = 0; first < sizes.experts; first += kWarp) {
    const unsigned lanes = chosen_lanes(candidates, sizes.experts, first, last), lane = 1u << lane_of_thread();
    const int e = first + lane_of_thread();
    if (lanes & lane) {
      const int64_t to = place + __popc(lanes & (lane - 1));
      chosen[to] = e;
      weights[to] = p[e] / (sizes.normalize ? sum : Sum(1)) * scale;
    }
    place += __popc(lanes);
  }
}

template <typename Sum>
struct ChoiceGradient {
  const Sum *logits, *dweights;
  const int32_t* chosen;
  const int64_t* counts;   // null: no balance loss
  const int32_t* targets;  // null: all tokens count
  Sum scale;               // factor of the weights
  double balance, z_loss;
  Number gradient_scale;
};

// dp += coefficient * counts for softmax; for sigmoids, of p over their sum.
template <typename Sum>
__device__ void add_balance(const RouterSizes& sizes, const Sum* p, Sum* dp, const int64_t* counts, Sum coefficient) {
  if (!sizes.sigmoids)
    return for_each_of_lane(sizes.experts, [&](int e) { dp[e] += coefficient * static_cast<Sum>(counts[e]); });
  Sum sum = 0, along = 0;
  for_each_of_lane(sizes.experts, [&](int e) {
    sum += p[e];
    along += static_cast<Sum>(counts[e]) * p[e];
  });
  sum = join_warp(sum, Plus{}) + Sum(1e-20);
  along = join_warp(along, Plus{});
  for_each_of_lane(sizes.experts, [&](int e) { dp[e] += coefficient * (static_cast<Sum>(counts[e]) - along / sum) / sum; });
}

template <typename Sum, typename T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp)
    choose_backward(RouterSizes sizes, ChoiceGradient<Sum> args, T* dlogits) {
  TRIVET_DYNAMIC_SHARED(Sum, shared);
  const int64_t token = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp_of_thread();
  if (token >= sizes.tokens) return;
  const int experts = sizes.experts;
  Sum *const p = shared + warp_of_thread() * 2 * experts, *const dp = p + experts;
  const Sum* const logits = args.logits + token * experts;
  const int32_t* const chosen = args.chosen + token * sizes.chosen;
  const Sum* const dweights = args.dweights + token * sizes.chosen;
  const Sum gradient_scale = static_cast<Sum>(read(args.gradient_scale));
  for_each_of_lane(experts, [&](int e) { p[e] = logits[e], dp[e] = 0; });
  Sum log_sum_exp = make_scores(sizes.sigmoids, p, experts);
  Sum sum = sizes.start_of_sum<Sum>(), along = 0;
  for (int k = 0; k < sizes.chosen; ++k) {
    sum += p[chosen[k]];
    along += dweights[k] * p[chosen[k]];
  }
  for_each_of_lane(sizes.chosen, [&](int k) {
    dp[chosen[k]] = args.scale * (sizes.normalize ? (dweights[k] - along / sum) / sum : dweights[k]);
  });
  __syncwarp();
  const bool is_counted = !args.targets || args.targets[token] >= 0;
  if (is_counted && args.counts) {
    const double balance = args.balance * static_cast<double>(experts) /
                           (static_cast<double>(sizes.chosen) * static_cast<double>(args.counts[experts]));
    add_balance(sizes, p, dp, args.counts, static_cast<Sum>(balance) * gradient_scale);
  }
  // From gradients of scores to those of logits; from here on, a lane reads and writes its own experts.
  if (sizes.sigmoids) {
    for_each_of_lane(experts, [&](int e) { dp[e] *= p[e] * (Sum(1) - p[e]); });
  } else {
    along = 0;
    for_each_of_lane(experts, [&](int e) { along += dp[e] * p[e]; });
    along = join_warp(along, Plus{});
    for_each_of_lane(experts, [&](int e) { dp[e] = p[e] * (dp[e] - along); });
  }
  Sum factor = 0;
  const bool has_z_loss = is_counted && args.z_loss != 0;
  if (has_z_loss) {
    if (sizes.sigmoids) {
      for_each_of_lane(experts, [&](int e) { p[e] = logits[e]; });
      log_sum_exp = make_scores(false, p, experts);
    }
    factor = Sum(2) * static_cast<Sum>(args.z_loss) * gradient_scale * log_sum_exp;
  }
  for_each_of_lane(experts,
                   [&](int e) { dlogits[token * experts + e] = narrow<T>(has_z_loss ? dp[e] + factor * p[e] : dp[e]); });
}

// The warps of a block that have enough shared memory, of which each needs `bytes`.
unsigned warps_with(int64_t bytes) {
  if (bytes > kSharedBytes) throw std::logic_error("choose_experts: a GPU's shared memory is too small for so many experts");
  return static_cast<unsigned>(std::min<int64_t>(kWarpsOfBlock, kSharedBytes / bytes));
}

// Ranges of choices: as many as fit into the arguments of a launch.
struct ChoiceRanges {
  static constexpr int kMost = 400;
  struct Range {
    int32_t begin, end;
  };
  int count = 0;
  Range ranges[kMost];
};

// A block finds the rows of its expert in the ranges from `first` on.
__global__ void __launch_bounds__(kThreads)
    order_rows(const __grid_constant__ ChoiceRanges list, int first, int ranges, const int32_t* chosen, int choices,
               int32_t* order, int32_t* places, int32_t* ends) {
  const int expert = static_cast<int>(blockIdx.x);
  int next = 0;
  if (first > 0) {
    next = ends[int64_t{expert} * ranges + first - 1];
  } else {
    int of_lower_experts = 0;
    for (int choice = static_cast<int>(threadIdx.x); choice < choices; choice += kThreads)
      of_lower_experts += chosen[choice] < expert ? 1 : 0;
    next = join_group<kThreads>(of_lower_experts, Plus{});
  }
  for (int r = 0; r < list.count; ++r) {
    for (int from = list.ranges[r].begin; from < list.ranges[r].end; from += kThreads) {
      const int choice = from + static_cast<int>(threadIdx.x);
      const bool is_here = choice < list.ranges[r].end && chosen[choice] == expert;
      const Prefix prefix = prefix_of_block<kThreads>(is_here ? 1 : 0);
      if (is_here) {
        order[next + prefix.before] = choice;
        places[choice] = next + prefix.before;
      }
      next += prefix.all;
    }
    if (threadIdx.x == 0) ends[int64_t{expert} * ranges + first + r] = next;
  }
}

// Each block counts some tokens in its shared memory. Sums of integers do not depend on their order.
__global__ void __launch_bounds__(kThreads)
    count_choices(const int32_t* chosen, const int32_t* targets, int64_t tokens, int per_token, int experts, int64_t* counts) {
  TRIVET_DYNAMIC_SHARED(int, of_block);
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += kThreads) of_block[e] = 0;
  __syncthreads();
  for (int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x; token < tokens; token += int64_t{gridDim.x} * kThreads) {
    if (targets && targets[token] < 0) continue;
    atomicAdd(of_block + experts, 1);
    for (int k = 0; k < per_token; ++k) atomicAdd(of_block + chosen[token * per_token + k], 1);
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e <= experts; e += kThreads)
    if (of_block[e] != 0) add_atomically(counts + e, of_block[e]);
}

__global__ void __launch_bounds__(kThreads)
    count_rows(const int32_t* ends, int64_t* counts, int experts, int64_t ranges, bool accumulate) {
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads)
    counts[e] = (accumulate ? counts[e] : 0) + ends[(e + 1) * ranges - 1] - (e == 0 ? 0 : ends[e * ranges - 1]);
}

template <typename T>
struct GatherOp {
  const T* x;
  T* out;
  const int32_t* order;
  int64_t of_token, width;
  template <int N>
  __device__ Pack<T, N> load(int64_t row, int64_t col) const {
    return load_pack<N>(x + order[row] / of_token * width + col);
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Pack<T, N>& loaded) const {
    store_pack(out + row * width + col, loaded);
  }
};

template <typename T, typename From>
struct CombineOp {
  const From* x;
  T* out;
  const int32_t* places;
  int64_t chosen, width;
  template <int N>
  __device__ Pack<From, N> load(int64_t row, int64_t col) const {
    return load_pack<N>(x + places[row * chosen] * width + col);
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Pack<From, N>& loaded) const {
    SumOf<T> sums[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = widen(loaded[i]);
    for (int64_t k = 1; k < chosen; ++k) {
      const Pack<From, N> next = load_pack<N>(x + places[row * chosen + k] * width + col);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += widen(next[i]);
    }
    Pack<T, N> sum;
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = narrow<T>(sums[i]);
    store_pack(out + row * width + col, sum);
  }
};

// SwiGluRule on the device. The usual rule has no limits, so that its results are those of kernels without a rule.
template <typename Sum>
struct UsualSwiGlu {
  explicit UsualSwiGlu(const SwiGluRule&) {}
  __device__ __forceinline__ Sum gate(Sum g) const { return g; }
  __device__ __forceinline__ Sum turn(Sum gate) const { return gate; }
  __device__ __forceinline__ Sum factor(Sum u) const { return u; }
  __device__ __forceinline__ Sum of_gate(Sum, Sum gradient) const { return gradient; }
  __device__ __forceinline__ Sum of_up(Sum, Sum gradient) const { return gradient; }
};
// Gradients are multiplied by 0 or 1, as selecting them takes more predicates than there are.
template <typename Sum>
struct LimitedSwiGlu {
  explicit LimitedSwiGlu(const SwiGluRule& rule)
      : limit(rule.limit > 0 ? static_cast<Sum>(rule.limit) : std::numeric_limits<Sum>::infinity()),
        alpha(static_cast<Sum>(rule.alpha)),
        offset(static_cast<Sum>(rule.offset)) {}
  Sum limit, alpha, offset;

  __device__ __forceinline__ Sum gate(Sum g) const { return g > limit ? limit : g; }
  __device__ __forceinline__ Sum turn(Sum gate) const { return alpha * gate; }
  __device__ __forceinline__ Sum factor(Sum u) const { return (u > limit ? limit : u < -limit ? -limit : u) + offset; }
  __device__ __forceinline__ Sum of_gate(Sum g, Sum gradient) const { return gradient * (g > limit ? Sum(0) : Sum(1)); }
  __device__ __forceinline__ Sum of_up(Sum u, Sum gradient) const {
    return gradient * (u > limit || u < -limit ? Sum(0) : Sum(1));
  }
};

// Calls body with the rule as a type.
template <typename Sum, typename Body>
void with_rule(const SwiGluRule& rule, const Body& body) {
  rule.usual() ? body(UsualSwiGlu<Sum>(rule)) : body(LimitedSwiGlu<Sum>(rule));
}

// Rows of gate_up are [gate | up], each `width` long.
template <typename T, typename Rule>
struct WeightedSwiGluOp {
  const T* gate_up;
  const SumOf<T>* weights;
  const int32_t* order;
  T* y;
  int64_t width;
  Rule limits;
  template <int N>
  struct Loaded {
    Pack<T, N> gate, up;
    SumOf<T> weight;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t row, int64_t col) const {
    const T* gate = gate_up + 2 * row * width + col;
    return {load_pack<N>(gate), load_pack<N>(gate + width), weights[order[row]]};
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Loaded<N>& loaded) const {
    using Sum = SumOf<T>;
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sum value = limits.gate(widen(loaded.gate[i])), factor = limits.factor(widen(loaded.up[i]));
      out[i] = narrow<T>(quotient(value, Sum(1) + exponential(-limits.turn(value))) * factor * loaded.weight);
    }
    store_pack(y + row * width + col, out);
  }
};

// The chunks of F whose sums are added in a tree.
struct Chunks {
  static constexpr int kMost = 64;
  int count = 0;
  int ends[kMost];
};

template <typename T, typename Rule>
struct WeightedSwiGluGradient {
  using Sum = SumOf<T>;
  const T *dy, *gate_up;
  const Sum* weights;
  const int32_t* order;
  T* dgate_up;
  Sum* dweights;
  int64_t rows, width;
  Rule limits;

  // Adds the terms of N adjacent elements of dweights to `sum`.
  template <int N>
  __device__ __forceinline__ void add(int64_t row, int64_t col, Sum weight, Sum& sum) const {
    const int64_t gate_place = 2 * row * width + col;
    const Pack<T, N> gradients = load_pack<N>(dy + row * width + col), gates = load_pack<N>(gate_up + gate_place),
                     ups = load_pack<N>(gate_up + gate_place + width);
    Pack<T, N> dgate, dup;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sum gate = widen(gates[i]), up = widen(ups[i]), gradient = widen(gradients[i]);
      const Sum value = limits.gate(gate), factor = limits.factor(up), turn = limits.turn(value);
      const Sum small = exponential(turn < 0 ? turn : -turn), whole = Sum(1) + small;
      const Sum open = quotient(turn < 0 ? small : Sum(1), whole), slope = quotient(small, whole * whole);
      sum += gradient * (value * open * factor);
      dgate[i] = narrow<T>(limits.of_gate(gate, gradient * weight * factor * (open + turn * slope)));
      dup[i] = narrow<T>(limits.of_up(up, gradient * weight * value * open));
    }
    store_pack(dgate_up + gate_place, dgate);
    store_pack(dgate_up + gate_place + width, dup);
  }
};

// A lane has the same elements of a chunk whether it may access them in packs or not, so that the sum does not depend on where
// the chunk begins.
template <typename T, typename Rule>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp)
    weighted_swiglu_backward(WeightedSwiGluGradient<T, Rule> args, const __grid_constant__ Chunks chunks, bool aligned) {
  using Sum = SumOf<T>;
  constexpr int kPack = kPackOf<T>;
  __shared__ Sum of_chunks[kWarpsOfBlock][Chunks::kMost];
  const int64_t row = int64_t{blockIdx.x} * kWarpsOfBlock + warp_of_thread();
  if (row >= args.rows) return;
  Sum* const sums = of_chunks[warp_of_thread()];
  const int32_t choice = args.order[row];
  const Sum weight = args.weights[choice];
  for (int chunk = 0, begin = 0; chunk < chunks.count; begin = chunks.ends[chunk++]) {
    const int end = chunks.ends[chunk];
    Sum sum = 0;
    for (int col = begin + lane_of_thread() * kPack; col < end; col += kWarp * kPack) {
      if (aligned && begin % kPack == 0 && col + kPack <= end)
        args.template add<kPack>(row, col, weight, sum);
      else
#pragma unroll 1
        for (int i = col; i < min(col + kPack, end); ++i) args.template add<1>(row, i, weight, sum);
    }
    sum = join_warp(sum, Plus{});
    if (lane_of_thread() == 0) sums[chunk] = sum;
  }
  if (lane_of_thread() != 0) return;
  // A subtree without elements adds nothing, not even a zero.
  const auto is_empty = [&](int first, int count) {
    return chunks.ends[first + count - 1] == (first == 0 ? 0 : chunks.ends[first - 1]);
  };
  for (int step = 1; step < chunks.count; step *= 2)
    for (int i = 0; i < chunks.count; i += 2 * step) {
      if (is_empty(i + step, step)) continue;
      sums[i] = is_empty(i, step) ? sums[i + step] : sums[i] + sums[i + step];
    }
  args.dweights[choice] = sums[0];
}

}  // namespace

void compute(const ChooseExperts& args, const Launch& launch) {
  const RouterSizes sizes(args.logits, args.chosen, args.rule);
  if (sizes.tokens == 0) return;
  const auto run = [&]<typename Sum>() {
    const int64_t bytes = (2 * sizes.experts + sizes.groups) * static_cast<int64_t>(sizeof(Sum));
    const unsigned warps = warps_with(bytes);
    TRIVET_LAUNCH(choose<Sum>, static_cast<unsigned>((sizes.tokens + warps - 1) / warps), warps * kWarp,
                  static_cast<size_t>(warps * bytes), launch.stream, sizes, data_of<Sum>(args.logits), data_of<Sum>(args.bias),
                  data_of<int32_t>(args.chosen), data_of<Sum>(args.weights), static_cast<Sum>(args.rule.scale));
  };
  args.logits.dtype == DType::Float64 ? run.operator()<double>() : run.operator()<float>();
}

void compute(const ChooseExpertsBackward& args, const Launch& launch) {
  const RouterSizes sizes(args.logits, args.chosen, args.rule);
  if (sizes.tokens == 0) return;
  const auto run = [&]<typename Sum, typename T>() {
    const int64_t bytes = 2 * sizes.experts * static_cast<int64_t>(sizeof(Sum));
    const unsigned warps = warps_with(bytes);
    const ChoiceGradient<Sum> gradient{data_of<Sum>(args.logits),
                                       data_of<Sum>(args.dweights),
                                       data_of<int32_t>(args.chosen),
                                       args.counts.absent() ? nullptr : data_of<int64_t>(args.counts),
                                       args.targets.absent() ? nullptr : data_of<int32_t>(args.targets),
                                       static_cast<Sum>(args.rule.scale),
                                       args.balance,
                                       args.z_loss,
                                       args.gradient_scale};
    TRIVET_LAUNCH((choose_backward<Sum, T>), static_cast<unsigned>((sizes.tokens + warps - 1) / warps), warps * kWarp,
                  static_cast<size_t>(warps * bytes), launch.stream, sizes, gradient, data_of<T>(args.dlogits));
  };
  dispatch_device_float(args.dlogits.dtype, [&]<typename T>() {
    args.logits.dtype == DType::Float64 ? run.template operator()<double, T>() : run.template operator()<float, T>();
  });
}

void compute(const OrderByExpert& args, const Launch& launch) {
  const auto ranges = static_cast<int>(args.ranges.size());
  const int64_t chosen = args.chosen.shape[1];
  if (args.ends.shape[0] == 0) return;
  for (int first = 0; first < ranges; first += ChoiceRanges::kMost) {
    ChoiceRanges list;
    list.count = std::min(ranges - first, ChoiceRanges::kMost);
    for (int r = 0; r < list.count; ++r) {
      const ProductCuts::Range& tokens = args.ranges[first + r];
      list.ranges[r] = {static_cast<int32_t>(tokens.begin * chosen), static_cast<int32_t>(tokens.end * chosen)};
    }
    TRIVET_LAUNCH(order_rows, static_cast<unsigned>(args.ends.shape[0]), kThreads, 0, launch.stream, list, first, ranges,
                  data_of<int32_t>(args.chosen), static_cast<int>(args.chosen.elements()), data_of<int32_t>(args.order),
                  data_of<int32_t>(args.places), data_of<int32_t>(args.ends));
  }
}

void compute(const CountChoices& args, const Launch& launch) {
  const int64_t experts = args.counts.elements() - 1, tokens = args.chosen.shape[0];
  compute(Zero{args.counts}, launch);
  if (tokens == 0) return;
  const int64_t bytes = (experts + 1) * static_cast<int64_t>(sizeof(int));
  if (bytes > kSharedBytes) throw std::logic_error("count_choices: a GPU's shared memory is too small for so many experts");
  constexpr int64_t kMostBlocks = 128;
  TRIVET_LAUNCH(count_choices, static_cast<unsigned>(std::min(kMostBlocks, (tokens + kThreads - 1) / kThreads)), kThreads,
                static_cast<size_t>(bytes), launch.stream, data_of<int32_t>(args.chosen), data_of<int32_t>(args.targets),
                tokens, static_cast<int>(args.chosen.shape[1]), static_cast<int>(experts), data_of<int64_t>(args.counts));
}

void compute(const CountRows& args, const Launch& launch) {
  TRIVET_LAUNCH(count_rows, 1, kThreads, 0, launch.stream, data_of<int32_t>(args.ends), data_of<int64_t>(args.counts),
                static_cast<int>(args.ends.shape[0]), args.ends.shape[1], args.accumulate);
}

void compute(const GatherRows& args, const Launch& launch) {
  if (args.out.elements() == 0) return;
  dispatch_device_float(args.x.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const GatherOp<T> op{data_of<T>(args.x), data_of<T>(args.out), data_of<int32_t>(args.order),
                         args.out.shape[0] / args.x.shape[0], args.x.shape[1]};
    launch_rows<kPack, 2>(op, args.out.shape[0], op.width, aligned_for_packs<kPack>(op.x, op.out), launch);
  });
}

void compute(const CombineRows& args, const Launch& launch) {
  dispatch_gradient(args.out.dtype, args.x.dtype, [&]<typename T, typename From>() {
    constexpr int kPack = kPackOf<T, From>;
    const CombineOp<T, From> op{data_of<From>(args.x), data_of<T>(args.out), data_of<int32_t>(args.places),
                                args.places.shape[1], args.out.shape[1]};
    const bool aligned = aligned_for_packs<kPack>(op.x) && aligned_for_packs<kPack>(op.out);
    launch_rows<kPack, 1>(op, args.out.shape[0], op.width, aligned, launch);
  });
}

void compute(const WeightedSwiGlu& args, const Launch& launch) {
  dispatch_device_float(args.y.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    with_rule<SumOf<T>>(args.rule, [&]<typename Rule>(const Rule& rule) {
      const WeightedSwiGluOp<T, Rule> op{data_of<T>(args.gate_up),
                                         data_of<SumOf<T>>(args.weights),
                                         data_of<int32_t>(args.order),
                                         data_of<T>(args.y),
                                         args.y.shape[1],
                                         rule};
      launch_rows<kPack, 2>(op, args.y.shape[0], op.width, aligned_for_packs<kPack>(op.gate_up, op.y), launch);
    });
  });
}

void compute(const WeightedSwiGluBackward& args, const Launch& launch) {
  if (args.dy.shape[0] == 0) return;
  Chunks chunks;
  if (args.ends.size() > Chunks::kMost) throw std::logic_error("weighted_swiglu_backward: at most 64 chunks on a GPU");
  for (const int64_t end : args.ends) chunks.ends[chunks.count++] = static_cast<int>(end);
  if (args.ends.empty()) chunks.ends[chunks.count++] = static_cast<int>(args.dy.shape[1]);
  dispatch_device_float(args.dy.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    with_rule<SumOf<T>>(args.rule, [&]<typename Rule>(const Rule& rule) {
      const WeightedSwiGluGradient<T, Rule> op{data_of<T>(args.dy),
                                               data_of<T>(args.gate_up),
                                               data_of<SumOf<T>>(args.weights),
                                               data_of<int32_t>(args.order),
                                               data_of<T>(args.dgate_up),
                                               data_of<SumOf<T>>(args.dweights),
                                               args.dy.shape[0],
                                               args.dy.shape[1],
                                               rule};
      const bool aligned = op.width % kPack == 0 && aligned_for_packs<kPack>(op.dy, op.gate_up, op.dgate_up);
      TRIVET_LAUNCH((weighted_swiglu_backward<T, Rule>), static_cast<unsigned>((op.rows + kWarpsOfBlock - 1) / kWarpsOfBlock),
                    kWarpsOfBlock * kWarp, 0, launch.stream, op, chunks, aligned);
    });
  });
}

}  // namespace trivet::kernels::cuda
