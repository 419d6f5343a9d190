#include "core/sample.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"

namespace trivet {
namespace {

void check_range(const char* what, ConstTensorView values, int32_t least, int64_t end) {
  if (!values.data || values.dtype != DType::Int32) return;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const int32_t value = values.as<int32_t>()[i];
    if (value >= least && value < end) continue;
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: {} {} at position {} of a microbatch is outside of what the model knows, 0 to {}",
                                what, value, i, end - 1));
  }
}

}  // namespace

Microbatch SampleSpec::without_memory(int64_t samples) const {
  return {{nullptr, input_dtype, inputs_of(samples)}, {nullptr, DType::Int32, targets_of(samples)}, 0};
}

void check(const Microbatch& microbatch, const SampleSpec& sample, int64_t samples) {
  const Shape inputs = sample.inputs_of(samples), targets = sample.targets_of(samples);
  if (!(microbatch.input.shape == inputs) || !(microbatch.targets.shape == targets))
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: a microbatch has inputs {} and targets {}, but the plan is for {} and {}",
                                to_string(microbatch.input.shape), to_string(microbatch.targets.shape), to_string(inputs),
                                to_string(targets)));
  check_range("input", microbatch.input, 0, sample.input_values);
  check_range("target", microbatch.targets, std::numeric_limits<int32_t>::min(), sample.classes);
}

}  // namespace trivet
