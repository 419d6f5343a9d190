// The samples that a curriculum chooses (trainer/admission.h), in the order of its rounds (admitted_order.h). An epoch is as
// many places as the data has samples, whichever of them were read.
#pragma once

#include <cstdint>
#include <vector>

#include "data/admitted_order.h"
#include "data/sampler.h"

namespace trivet::data {

// A step (counted from 0), and how many samples are admitted from there on.
struct AdmittingStep {
  int64_t step = 0, samples = 0;
  bool operator==(const AdmittingStep&) const = default;
};

struct Admissions {
  std::vector<int64_t> samples;      // in the order in which they are admitted, in each step by their numbers; others never are
  std::vector<AdmittingStep> steps;  // in ascending order; the first is step 0, if any sample is admitted in it
  int64_t all = 0;                   // samples of the data
};

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
