#include "data/made_up_source.h"

#include <cstring>

#include "core/random.h"

namespace trivet::data {
namespace {

// Value i of a sample. Integers wrap around at `end`.
template <typename T>
T made_up(uint64_t sample, uint64_t i, uint32_t stream, int64_t end) {
  const uint32_t bits = philox(random_key(0, "made up"), i, sample)[stream];
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(bits % static_cast<uint64_t>(end));
  else
    return T(2 * unit_float(bits) - 1);
}

template <typename T>
void fill_values(std::span<std::byte> out, uint64_t sample, uint32_t stream, int64_t end) {
  for (size_t i = 0; i < out.size() / sizeof(T); ++i) {
    const T value = made_up<T>(sample, i, stream, end);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

void MadeUpSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  const auto number = static_cast<uint64_t>(sample);
  if (is_float(spec_.input_dtype))
    dispatch_float(spec_.input_dtype, [&]<typename T>() { fill_values<T>(input, number, 0, 0); });
  else
    fill_values<int32_t>(input, number, 0, spec_.input_values);
  fill_values<int32_t>(std::as_writable_bytes(targets), number, 1, spec_.classes);
}

std::vector<HostMicrobatch> made_up_step(const SampleSpec& spec, const BatchLayout& layout) {
  const auto source = std::make_shared<MadeUpSource>(spec, layout.global_batch());
  const MicrobatchLoader loader(source, SampleOrder(source->samples(), 0, false), layout);
  std::vector<HostMicrobatch> microbatches(layout.accumulation);
  for (size_t m = 0; m < microbatches.size(); ++m) loader.fill(0, static_cast<int64_t>(m), microbatches[m]);
  return microbatches;
}

}  // namespace trivet::data
