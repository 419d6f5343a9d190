// A sum of doubles that no order can change: each term is cut into 32-bit digits that are summed as integers.
//
// Losses and norms are combined over blocks, ranks and microbatches with it, so they have the same bits on every layout. Terms
// are taken to the grid 2^-192 (smaller bits are dropped, per term); magnitudes up to 2^95 fit. Up to 2^31 terms.
// The limbs travel through an all_reduce of kLimbs + 1 int64 (ReduceOp::Sum).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trivet {

class ExactSum {
 public:
  static constexpr int kLimbs = 9;  // 9 x 32 bits: 2^-192 .. 2^96
  static constexpr int kLowestExponent = -192;

  void add(double term);
  void add(const ExactSum& other);
  // Rounded once. NaN when a term was not finite or too large.
  double value() const;
  bool finite() const { return words_[kLimbs] == 0; }

  // For reduction across ranks: sum these words element-wise as integers.
  std::span<int64_t> words() { return words_; }
  std::span<const int64_t> words() const { return words_; }

 private:
  std::array<int64_t, kLimbs + 1> words_{};  // limbs, lowest first; the last word counts terms that do not fit
};

}  // namespace trivet
