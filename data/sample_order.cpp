// The order of an epoch is a permutation of [0, samples) that is computed, not stored. A Feistel network is a bijection of the
// 2h-bit numbers, whatever its round function. Numbers that fall outside [0, samples) go through it again until they fall
// inside ("cycle walking", Black and Rogaway 2002), which makes it a bijection of [0, samples). 2h is the smallest even number
// of bits that is enough, so the expected number of passes is less than four.
#include "data/sample_order.h"

#include <bit>
#include <stdexcept>

#include "core/random.h"

namespace trivet::data {
namespace {

constexpr uint64_t kRounds = 8;

uint64_t feistel(uint64_t value, int half_bits, uint64_t key, uint64_t epoch) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock random = philox(key, right, epoch * kRounds + round);
    const uint64_t mixed = random[0] | uint64_t{random[1]} << 32;
    const uint64_t next = left ^ (mixed & mask);
    left = right, right = next;
  }
  return left << half_bits | right;
}

int64_t permuted(int64_t index, int64_t size, uint64_t key, int64_t epoch) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  const int half_bits = (bits + 1) / 2;
  if (half_bits == 0) return 0;
  auto value = static_cast<uint64_t>(index);
  do value = feistel(value, half_bits, key, static_cast<uint64_t>(epoch));
  while (value >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(value);
}

}  // namespace

int64_t SampleOrder::sample_of(int64_t number) const {
  if (number < 0) throw std::logic_error("sample order: negative sample number");
  return sample_at(number / samples_, number % samples_);
}

int64_t SampleOrder::sample_at(int64_t epoch, int64_t place) const {
  return shuffle_ ? permuted(place, samples_, random_key(seed_, "data order"), epoch) : place;
}

}  // namespace trivet::data
