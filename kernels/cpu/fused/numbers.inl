// Conversions between stored and computed numbers, in forms that the compiler can vectorise. Included by the *_loops.inl files.

inline float read(float value) { return value; }
inline double read(double value) { return value; }
inline float read(bfloat16 value) { return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16); }
// A half's exponent bias is 112 less than a float's; infinity and NaN have all exponent bits set in both. The value is read
// from memory as an integer, because the compiler does not vectorise loads of _Float16.
inline float read(const float16& value) {
  typedef uint16_t Word __attribute__((may_alias));
  const uint32_t bits = *reinterpret_cast<const Word*>(&value), magnitude = bits & 0x7fffu;
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scaled) | special | (bits & 0x8000u) << 16);
}

inline uint16_t bfloat16_bits(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? (word >> 16) | 0x40u : rounded);
}

inline uint16_t float16_bits(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value), magnitude = word & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Adding 0.5 leaves a subnormal half, rounded to even, in the low bits.
  const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, 0.5f);
  const uint32_t not_a_number = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and above round to infinity
  half = magnitude > 0x7f800000u ? not_a_number : half;
  return static_cast<uint16_t>(half | (word >> 16 & 0x8000u));
}

// Rounded once, to nearest even.
template <typename T>
inline T write(float value) {
  if constexpr (__is_same(T, bfloat16))
    return __builtin_bit_cast(bfloat16, bfloat16_bits(value));
  else if constexpr (__is_same(T, float16))
    return __builtin_bit_cast(float16, float16_bits(value));
  else
    return static_cast<T>(value);
}

// Rounds to odd: if no float equals `value`, the result is the neighbouring float whose last bit is 1. Rounding that to 16 bits
// equals rounding `value` once.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  uint32_t bits = __builtin_bit_cast(uint32_t, nearest);
  bits -= __builtin_fabs(back) > __builtin_fabs(value) ? 1u : 0u;
  bits |= back < value || back > value ? 1u : 0u;
  return __builtin_bit_cast(float, bits);
}

template <typename T>
inline T write(double value) {
  if constexpr (sizeof(T) == 2)
    return write<T>(round_to_odd(value));
  else
    return static_cast<T>(value);
}

// e^x to about one unit in the last place: x = k ln 2 + r, |r| <= ln 2 / 2, a polynomial in r, times 2^k in two steps so that
// results near the limits neither overflow nor vanish early.
inline float exponential(float x) {
  const float clamped = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
  const float k = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;  // 1.5 x 2^23: adding it rounds to an integer
  const float r = (clamped - k * 0.693145752f) - k * 1.42860677e-6f;
  float p = 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const int32_t power = static_cast<int32_t>(k), half = power >> 1;
  const float first = __builtin_bit_cast(float, static_cast<uint32_t>(half + 127) << 23);
  const float second = __builtin_bit_cast(float, static_cast<uint32_t>(power - half + 127) << 23);
  return p * first * second;
}
inline double exponential(double x) { return __builtin_exp(x); }

// tanh(x) to about two units in the last place: for small x, x + x^3 p(x^2), where p was fitted at Chebyshev nodes; otherwise
// 1 - 2 / (e^2|x| + 1), with the sign of x.
inline float hyperbolic_tangent(float x) {
  const float magnitude = __builtin_fabsf(x), square = x * x;
  float p = -6.48075e-3f;
  p = p * square + 2.123864e-2f;
  p = p * square - 5.389761e-2f;
  p = p * square + 1.3333052e-1f;
  p = p * square - 3.333333e-1f;
  const float near_zero = x + x * square * p, far = 1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f);
  return magnitude < 0.55f ? near_zero : __builtin_copysignf(far, x);
}
inline double hyperbolic_tangent(double x) { return __builtin_tanh(x); }

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

// Sum of term(i) for i in [0, count): 16 interleaved partial sums, then a fixed tree. It has the same bits on every instruction
// set.
template <typename Sum, typename Term>
inline Sum lane_sum(int64_t count, const Term& term) {
  Sum lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int64_t lane = 0; lane < 16; ++lane) lanes[lane] += term(i + lane);
  for (int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += term(i + lane);
  for (int lane = 0; lane < 8; ++lane) lanes[lane] += lanes[lane + 8];
  for (int lane = 0; lane < 4; ++lane) lanes[lane] += lanes[lane + 4];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}
