#include "data/first_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trivet::data {
namespace {

// The free places of samples, as the leaves of a tree whose inner nodes have the most of those below them.
class FreePlaces {
 public:
  FreePlaces(size_t samples, int64_t places)
      : leaves_(std::bit_ceil(std::max<size_t>(samples, 1))), free_(2 * leaves_, static_cast<int32_t>(places)) {}

  size_t first_with(int64_t places) const {
    size_t node = 1;
    while (node < leaves_) node = free_[2 * node] >= places ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }
  void set(size_t sample, int64_t places) {
    size_t node = leaves_ + sample;
    free_[node] = static_cast<int32_t>(places);
    while ((node /= 2) > 0) free_[node] = std::max(free_[2 * node], free_[2 * node + 1]);
  }

 private:
  const size_t leaves_;
  std::vector<int32_t> free_;
};

}  // namespace

FittedItems::FittedItems(size_t items) : items_(items), first_items_(items + 1) {
  std::iota(items_.begin(), items_.end(), size_t{0});
  std::iota(first_items_.begin(), first_items_.end(), size_t{0});
}

FittedItems::FittedItems(std::span<const size_t> sample_of)
    : items_(sample_of.size()), first_items_(sample_of.empty() ? 1 : *std::ranges::max_element(sample_of) + 2) {
  for (const size_t sample : sample_of) ++first_items_[sample + 1];
  std::partial_sum(first_items_.begin(), first_items_.end(), first_items_.begin());
  std::vector<size_t> next(first_items_.begin(), first_items_.end() - 1);
  for (size_t item = 0; item < sample_of.size(); ++item) items_[next[sample_of[item]]++] = item;
}

std::span<const size_t> FittedItems::of(int64_t sample) const {
  const size_t begin = first_items_[static_cast<size_t>(sample)], end = first_items_[static_cast<size_t>(sample) + 1];
  return std::span(items_).subspan(begin, end - begin);
}

FittedItems first_fit(std::span<const int64_t> sizes, size_t rows, int64_t room) {
  const size_t items = sizes.size() / rows;
  FreePlaces fullest(items, room);  // counts those of each sample's fullest row
  std::vector<int64_t> used(items * rows);
  std::vector<size_t> sample_of;
  for (size_t item = 0; item < items; ++item) {
    const std::span<const int64_t> needed = sizes.subspan(item * rows, rows);
    const size_t sample = fullest.first_with(*std::ranges::max_element(needed));
    const std::span<int64_t> taken = std::span(used).subspan(sample * rows, rows);
    for (size_t row = 0; row < rows; ++row) taken[row] += needed[row];
    fullest.set(sample, room - *std::ranges::max_element(taken));
    sample_of.push_back(sample);
  }
  return FittedItems(sample_of);
}

}  // namespace trivet::data
