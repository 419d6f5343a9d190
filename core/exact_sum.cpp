#include "core/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace trivet {

void ExactSum::add(double term) {
  if (term == 0) return;
  if (!std::isfinite(term) || std::abs(term) >= 0x1p95) {
    ++words_[kLimbs];
    return;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= uint64_t{1} << 52;
  int shift = (biased == 0 ? 1 : biased) - 1075 - kLowestExponent;  // term = mantissa x 2^(shift + kLowestExponent)
  if (shift < 0) {
    mantissa = shift <= -64 ? 0 : mantissa >> -shift;
    shift = 0;
  }
  const int limb = shift / 32;
  const auto wide = static_cast<unsigned __int128>(mantissa) << (shift % 32);
  const int64_t sign = term < 0 ? -1 : 1;
  for (int i = 0; i < 3 && limb + i < kLimbs; ++i)
    words_[static_cast<size_t>(limb + i)] += sign * static_cast<int64_t>(static_cast<uint32_t>(wide >> (32 * i)));
}

void ExactSum::add(const ExactSum& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] += other.words_[i];
}

double ExactSum::value() const {
  if (!finite()) return std::numeric_limits<double>::quiet_NaN();
  // Carry, so that all limbs but the highest lie in [0, 2^32).
  std::array<int64_t, kLimbs> limbs{};
  int64_t carry = 0;
  for (int i = 0; i < kLimbs; ++i) {
    const int64_t sum = words_[static_cast<size_t>(i)] + carry;
    limbs[static_cast<size_t>(i)] = i + 1 < kLimbs ? sum & 0xffffffff : sum;
    carry = sum >> 32;
  }
  const bool negative = limbs[kLimbs - 1] < 0;
  if (negative) {  // two's complement over all limbs, so that the digits below are those of the magnitude
    carry = 1;
    for (int i = 0; i < kLimbs; ++i) {
      const int64_t flipped =
          i + 1 < kLimbs ? (~limbs[static_cast<size_t>(i)] & 0xffffffff) + carry : ~limbs[static_cast<size_t>(i)] + carry;
      limbs[static_cast<size_t>(i)] = i + 1 < kLimbs ? flipped & 0xffffffff : flipped;
      carry = flipped >> 32;
    }
  }
  // The highest non-zero limb and the two below hold more than 53 bits; what is lower only makes a tie sticky.
  int top = kLimbs - 1;
  while (top > 0 && limbs[static_cast<size_t>(top)] == 0) --top;
  unsigned __int128 digits = 0;
  for (int i = 0; i < 3; ++i)
    digits = (digits << 32) | (top - i >= 0 ? static_cast<uint64_t>(limbs[static_cast<size_t>(top - i)]) : 0);
  bool sticky = false;
  for (int i = 0; i <= top - 3; ++i) sticky |= limbs[static_cast<size_t>(i)] != 0;
  int exponent = kLowestExponent + 32 * (top - 2);
  const auto high = static_cast<uint64_t>(digits >> 64);
  int extra = (high ? 128 - std::countl_zero(high) : 64 - std::countl_zero(static_cast<uint64_t>(digits))) - 62;
  if (extra > 0) {  // to 62 bits and a sticky bit, which the conversion to double then rounds once
    sticky |= (digits & ((static_cast<unsigned __int128>(1) << extra) - 1)) != 0;
    digits >>= extra;
    exponent += extra;
  }
  const double magnitude =
      std::ldexp(static_cast<double>((static_cast<uint64_t>(digits) << 1) | (sticky ? 1 : 0)), exponent - 1);
  return negative ? -magnitude : magnitude;
}

}  // namespace trivet
