// A sum of doubles that does not depend on the order of its terms: each term is cut into 32-bit digits, which are summed as
// integers.
//
// Losses and norms are combined this way over blocks, ranks and microbatches, so they are bit-identical on every layout. Each
// term is truncated to a multiple of 2^-192; its magnitude must be below 2^95. A sum takes up to 2^31 terms. The limbs travel
// through an all_reduce of kWords int64 (ReduceOp::Sum). On a device a sum is a tensor of these words.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "core/host_device.h"

namespace trivet {

// The digits that a term adds to the words of a sum.
struct ExactTerm {
  static constexpr int kDigits = 3;
  int limb = 0;         // where digits[0] goes; -1: the term is not finite or too large
  int64_t digits[3]{};  // added to words limb, limb + 1, ..., up to the last limb
};

class ExactSum {
 public:
  static constexpr int kLimbs = 9;  // 9 x 32 bits: 2^-192 .. 2^96
  static constexpr int kWords = kLimbs + 1;
  static constexpr int kLowestExponent = -192;

  TRIVET_HOST_DEVICE static constexpr ExactTerm term_of(double term);

  void add(double term);
  void add(const ExactSum& other);
  // The sum, rounded once. NaN if a term was not finite or was too large.
  double value() const { return value_of(words_.data()); }
  bool finite() const { return words_[kLimbs] == 0; }

  TRIVET_HOST_DEVICE static double value_of(const int64_t* words);

  // For reduction across ranks: sum these words element-wise as integers.
  std::span<int64_t> words() { return words_; }
  std::span<const int64_t> words() const { return words_; }

 private:
  std::array<int64_t, kWords> words_{};  // limbs, lowest first; the last word counts terms that do not fit
};

TRIVET_HOST_DEVICE constexpr ExactTerm ExactSum::term_of(double term) {
  ExactTerm parts;
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  if (biased >= 1023 + 95) {  // at least 2^95, infinite or NaN
    parts.limb = -1;
    return parts;
  }
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= uint64_t{1} << 52;
  int shift = (biased == 0 ? 1 : biased) - 1075 - kLowestExponent;  // term = mantissa x 2^(shift + kLowestExponent)
  if (shift < 0) {
    mantissa = shift <= -64 ? 0 : mantissa >> -shift;
    shift = 0;
  }
  parts.limb = shift / 32;
  const auto wide = static_cast<unsigned __int128>(mantissa) << (shift % 32);
  const int64_t sign = bits >> 63 ? -1 : 1;
  for (int i = 0; i < ExactTerm::kDigits; ++i)
    parts.digits[i] = sign * static_cast<int64_t>(static_cast<uint32_t>(wide >> (32 * i)));
  return parts;
}

TRIVET_HOST_DEVICE inline double ExactSum::value_of(const int64_t* words) {
  if (words[kLimbs] != 0) return std::bit_cast<double>(uint64_t{0x7ff8} << 48);
  // Carry, so that all limbs but the highest are in [0, 2^32).
  int64_t limbs[kLimbs];
  int64_t carry = 0;
  for (int i = 0; i < kLimbs; ++i) {
    const int64_t sum = words[i] + carry;
    limbs[i] = i + 1 < kLimbs ? sum & 0xffffffff : sum;
    carry = sum >> 32;
  }
  const bool negative = limbs[kLimbs - 1] < 0;
  if (negative) {  // two's complement over all limbs, so that the digits below are those of the magnitude
    carry = 1;
    for (int i = 0; i < kLimbs; ++i) {
      const int64_t flipped = i + 1 < kLimbs ? (~limbs[i] & 0xffffffff) + carry : ~limbs[i] + carry;
      limbs[i] = i + 1 < kLimbs ? flipped & 0xffffffff : flipped;
      carry = flipped >> 32;
    }
  }
  // The highest non-zero limb and the two below hold more than 53 bits; lower limbs only set the sticky bit.
  int top = kLimbs - 1;
  while (top > 0 && limbs[top] == 0) --top;
  unsigned __int128 digits = 0;
  for (int i = 0; i < 3; ++i) digits = (digits << 32) | (top - i >= 0 ? static_cast<uint64_t>(limbs[top - i]) : 0);
  bool sticky = false;
  for (int i = 0; i <= top - 3; ++i) sticky |= limbs[i] != 0;
  if (digits == 0) return 0.0;
  // Reduce to 62 bits and a sticky bit; the conversion to double then rounds once.
  int exponent = kLowestExponent + 32 * (top - 2);
  while (digits >> 62 != 0) {
    sticky |= (digits & 1) != 0;
    digits >>= 1;
    ++exponent;
  }
  const double rounded = static_cast<double>((static_cast<uint64_t>(digits) << 1) | (sticky ? 1 : 0));
  // Exact: the factor is a power of two within the range of normal numbers.
  const double magnitude = rounded * std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent - 1) << 52);
  return negative ? -magnitude : magnitude;
}

}  // namespace trivet
