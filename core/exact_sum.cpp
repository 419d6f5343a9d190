#include "core/exact_sum.h"

namespace trivet {

void ExactSum::add(double term) {
  const ExactTerm parts = term_of(term);
  if (parts.limb < 0) {
    ++words_[kLimbs];
    return;
  }
  for (int i = 0; i < ExactTerm::kDigits && parts.limb + i < kLimbs; ++i) words_[parts.limb + i] += parts.digits[i];
}

void ExactSum::add(const ExactSum& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] += other.words_[i];
}

}  // namespace trivet
