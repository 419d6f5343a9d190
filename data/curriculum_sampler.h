// The samples that a curriculum chooses (admission.h), in the order of its rounds (admitted_order.h). An epoch is as many
// places as the data has samples, whichever of them were read.
#pragma once

#include "data/admission.h"
#include "data/admitted_order.h"
#include "data/sampler.h"

namespace trivet::data {

class CurriculumSampler final : public Sampler {
 public:
  // The first step must admit a sample. The layout's rank does not matter.
  CurriculumSampler(const Admissions& admissions, uint64_t seed, bool shuffle, const BatchLayout& layout);

  // The epoch of a visit is its round.
  Visit visit(int64_t step, int64_t microbatch, int64_t row) const override;
  int64_t steps_of(double epochs) const override;
  int64_t epochs_in(int64_t steps) const override;

 private:
  int64_t samples_;
  BatchLayout layout_;
  AdmittedOrder order_;
};

}  // namespace trivet::data
