// Vectors of 64 bytes for loops that are compiled per instruction set (kernels/cpu/isa.h): processors with narrower registers
// use several of them per vector. This file is included by other .inl files, inside the namespace of one instruction set.

template <typename Sum>
struct Lanes;
template <>
struct Lanes<float> {
  static constexpr int64_t kCount = 16;
  typedef float type __attribute__((vector_size(64), may_alias));
  typedef int32_t Int __attribute__((vector_size(64), may_alias));
};
template <>
struct Lanes<double> {
  static constexpr int64_t kCount = 8;
  typedef double type __attribute__((vector_size(64), may_alias));
  typedef int64_t Int __attribute__((vector_size(64), may_alias));
};
typedef uint32_t Words __attribute__((vector_size(64), may_alias));
typedef uint16_t HalfWords __attribute__((vector_size(32), may_alias));

#define TRIVET_INLINE [[gnu::always_inline]] static inline

// lanes = from[0 .. kCount), exactly.
TRIVET_INLINE void load(const float* from, Lanes<float>::type& lanes) { __builtin_memcpy(&lanes, from, 64); }
TRIVET_INLINE void load(const double* from, Lanes<double>::type& lanes) { __builtin_memcpy(&lanes, from, 64); }
TRIVET_INLINE void load(const bfloat16* from, Lanes<float>::type& lanes) {
  HalfWords half;
  __builtin_memcpy(&half, from, 32);
  const Words words = __builtin_convertvector(half, Words) << 16;
  __builtin_memcpy(&lanes, &words, 64);
}
TRIVET_INLINE void load(const float16* from, Lanes<float>::type& lanes) {
  for (int lane = 0; lane < 16; ++lane) lanes[lane] = static_cast<float>(from[lane]);
}

// to[0 .. kCount) = lanes, rounded to nearest even.
TRIVET_INLINE void store(const Lanes<float>::type& lanes, float* to) { __builtin_memcpy(to, &lanes, 64); }
TRIVET_INLINE void store(const Lanes<double>::type& lanes, double* to) { __builtin_memcpy(to, &lanes, 64); }
TRIVET_INLINE void store(const Lanes<float>::type& lanes, bfloat16* to) {
  Words words;
  __builtin_memcpy(&words, &lanes, 64);
  const Words rounded = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
  const Words undefined = (words >> 16) | 0x40u;
  const HalfWords half = __builtin_convertvector((words & 0x7fffffffu) > 0x7f800000u ? undefined : rounded, HalfWords);
  __builtin_memcpy(static_cast<void*>(to), &half, 32);
}
TRIVET_INLINE void store(const Lanes<float>::type& lanes, float16* to) {
  for (int lane = 0; lane < 16; ++lane) to[lane] = static_cast<float16>(lanes[lane]);
}
// Loads the first `count` lanes; the other lanes become `rest`.
template <typename T, typename Sum>
TRIVET_INLINE void load_some(const T* from, int64_t count, Sum rest, typename Lanes<Sum>::type& lanes) {
  if (count >= Lanes<Sum>::kCount) return load(from, lanes);
  lanes = rest - typename Lanes<Sum>::type{};
  T some[Lanes<Sum>::kCount] = {};
  for (int64_t lane = 0; lane < count; ++lane) some[lane] = from[lane];
  typename Lanes<Sum>::type loaded;
  load(some, loaded);
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = loaded[lane];
}
template <typename Sum, typename T>
TRIVET_INLINE void store_some(const typename Lanes<Sum>::type& lanes, int64_t count, T* to) {
  if (count >= Lanes<Sum>::kCount) return store(lanes, to);
  T some[Lanes<Sum>::kCount];
  store(lanes, some);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = some[lane];
}

// lanes[i] = lanes[i ^ kStep]
template <typename Sum, int kStep>
TRIVET_INLINE void swap_lanes(const typename Lanes<Sum>::type& lanes, typename Lanes<Sum>::type& swapped) {
  typename Lanes<Sum>::Int from;
  for (int lane = 0; lane < Lanes<Sum>::kCount; ++lane) from[lane] = lane ^ kStep;
  swapped = __builtin_shuffle(lanes, from);
}
template <typename Sum, int kStep>
TRIVET_INLINE void fold_maximum(typename Lanes<Sum>::type& lanes) {
  typename Lanes<Sum>::type other;
  swap_lanes<Sum, kStep>(lanes, other);
  lanes = lanes > other ? lanes : other;
}
template <typename Sum, int kStep>
TRIVET_INLINE void fold_sum(typename Lanes<Sum>::type& lanes) {
  typename Lanes<Sum>::type other;
  swap_lanes<Sum, kStep>(lanes, other);
  lanes += other;
}
// Every lane becomes the maximum (the sum, in a fixed order) of all lanes.
template <typename Sum>
TRIVET_INLINE void spread_maximum(typename Lanes<Sum>::type& lanes) {
  if constexpr (Lanes<Sum>::kCount == 16) fold_maximum<Sum, 8>(lanes);
  fold_maximum<Sum, 4>(lanes);
  fold_maximum<Sum, 2>(lanes);
  fold_maximum<Sum, 1>(lanes);
}
template <typename Sum>
TRIVET_INLINE void spread_sum(typename Lanes<Sum>::type& lanes) {
  if constexpr (Lanes<Sum>::kCount == 16) fold_sum<Sum, 8>(lanes);
  fold_sum<Sum, 4>(lanes);
  fold_sum<Sum, 2>(lanes);
  fold_sum<Sum, 1>(lanes);
}

// block = block^T. In round s, lane bit s changes places with row bit s (Eklundh 1972).
template <typename Sum, int kStep>
TRIVET_INLINE void exchange_bit(typename Lanes<Sum>::type* block) {
  constexpr int kCount = Lanes<Sum>::kCount;
  typename Lanes<Sum>::Int low, high;
  for (int lane = 0; lane < kCount; ++lane) {
    low[lane] = (lane & kStep) != 0 ? kCount + lane - kStep : lane;
    high[lane] = (lane & kStep) != 0 ? kCount + lane : lane + kStep;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kCount; ++row) {
    if ((row & kStep) != 0) continue;
    const typename Lanes<Sum>::type first = block[row], second = block[row + kStep];
    block[row] = __builtin_shuffle(first, second, low);
    block[row + kStep] = __builtin_shuffle(first, second, high);
  }
}
template <typename Sum>
TRIVET_INLINE void transpose(typename Lanes<Sum>::type* block) {
  exchange_bit<Sum, 1>(block);
  exchange_bit<Sum, 2>(block);
  exchange_bit<Sum, 4>(block);
  if constexpr (Lanes<Sum>::kCount == 16) exchange_bit<Sum, 8>(block);
}

// x = e^x for x <= 0, which is what a softmax needs; below 2^-126 the result is 0. NaN stays NaN. Error below 1 unit in the
// last place: x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite 1980: ln 2 in two parts), e^r by its Taylor series to r^7 / 7!.
TRIVET_INLINE void exponentiate(Lanes<float>::type& x) {
  constexpr float kLowest = -87.33654f, kShift = 0x1.8p23f;
  const Lanes<float>::type lowest = kLowest - Lanes<float>::type{};
  const Lanes<float>::type bounded = x < lowest ? lowest : x;
  const Lanes<float>::type shifted = bounded * 1.44269504f + kShift;  // the integer n is now in the low bits of the mantissa
  const Lanes<float>::type n = shifted - kShift;
  const Lanes<float>::type r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes<float>::type p = r * 1.9841270e-4f + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  Words scale;
  __builtin_memcpy(&scale, &shifted, 64);
  scale = (scale + 127u) << 23;
  Lanes<float>::type power;
  __builtin_memcpy(&power, &scale, 64);
  x = x < lowest ? Lanes<float>::type{} : p * power;
}
TRIVET_INLINE void exponentiate(Lanes<double>::type& x) {
  for (int lane = 0; lane < 8; ++lane) x[lane] = __builtin_exp(x[lane]);
}

#undef TRIVET_INLINE
