#include "data/difficulty.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace trivet::data {
namespace {

constexpr int kFractionBits = 20;

// The binary logarithm in units of 2^-20, rounded down. Each bit of the fraction is found by squaring: of a number from 1 to 2,
// the logarithm doubles.
uint64_t fixed_log2(uint64_t number) {
  const auto whole = static_cast<int>(std::bit_width(number)) - 1;
  // From 1 to 2, in units of 2^-31.
  uint64_t mantissa = whole > 31 ? number >> (whole - 31) : number << (31 - whole);
  uint64_t fraction = 0;
  for (int bit = 0; bit < kFractionBits; ++bit) {
    mantissa = mantissa * mantissa >> 31;
    const bool is_set = mantissa >> 32 != 0;
    fraction = fraction << 1 | (is_set ? 1 : 0);
    if (is_set) mantissa >>= 1;
  }
  return static_cast<uint64_t>(whole) << kFractionBits | fraction;
}

// Counts the inputs of a row up to that of its last target that counts.
int64_t counted(std::span<const int32_t> targets) {
  int64_t count = static_cast<int64_t>(targets.size());
  while (count > 0 && targets[static_cast<size_t>(count - 1)] < 0) --count;
  return count;
}

// Calls visit(sample, tokens) for each row of each sample, in order.
template <typename Visit>
void visit_rows(const SampleSource& samples, Visit visit) {
  const SampleSpec& spec = samples.spec();
  if (!spec.is_sequence()) throw std::logic_error("difficulty: the samples are not sequences of tokens");
  const size_t length = spec.input.elements();
  std::vector<int32_t> input(spec.rows() * length), targets(spec.rows() * length);
  for (int64_t sample = 0; sample < samples.samples(); ++sample) {
    samples.fill(sample, 0, std::as_writable_bytes(std::span(input)), targets);
    for (size_t first = 0; first < input.size(); first += length) {
      const std::span<const int32_t> expected(targets.data() + first, length);
      visit(sample, std::span<const int32_t>(input.data() + first, static_cast<size_t>(counted(expected))));
    }
  }
}

// The rarity of each token.
std::vector<int64_t> rarities_of_tokens(const SampleSource& samples) {
  std::vector<uint64_t> counts(samples.spec().input_values);
  uint64_t total = 0;
  visit_rows(samples, [&](int64_t, std::span<const int32_t> tokens) {
    total += tokens.size();
    for (const int32_t token : tokens) ++counts.at(token);
  });
  std::vector<int64_t> rarities;
  for (const uint64_t count : counts) rarities.push_back(count == 0 ? 0 : fixed_rarity(count, total));
  return rarities;
}

}  // namespace

int64_t fixed_rarity(uint64_t count, uint64_t total) {
  constexpr uint64_t kLn2 = 2'977'044'472;  // in units of 2^-32
  return static_cast<int64_t>((fixed_log2(total) - fixed_log2(count)) * kLn2 >> 32);
}

std::vector<int64_t> lengths_of(const SampleSource& samples) {
  std::vector<int64_t> lengths(samples.samples());
  visit_rows(samples,
             [&](int64_t sample, std::span<const int32_t> tokens) { lengths[sample] += static_cast<int64_t>(tokens.size()); });
  return lengths;
}

std::vector<int64_t> rarities_of(const SampleSource& samples) {
  const std::vector<int64_t> of_tokens = rarities_of_tokens(samples);
  std::vector<int64_t> rarities(samples.samples());
  visit_rows(samples, [&](int64_t sample, std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) rarities[sample] += of_tokens[token];
  });
  for (int64_t& rarity : rarities) rarity >>= kFractionBits;
  return rarities;
}

}  // namespace trivet::data
