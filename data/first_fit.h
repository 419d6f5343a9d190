// Puts items into samples: each, in their order, into the first sample that has room for it (first fit).
//
// A sample may have several rows, in each of which an item takes places of its own. It then has room for an item if its fullest
// row has room for what the item needs most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trivet::data {

// The items of each sample, in their order.
class FittedItems {
 public:
  // Every sample has one item.
  explicit FittedItems(size_t items = 0);
  // `sample_of`: by item. No sample up to the largest may be left out.
  explicit FittedItems(std::span<const size_t> sample_of);

  int64_t samples() const { return static_cast<int64_t>(first_items_.size()) - 1; }
  std::span<const size_t> of(int64_t sample) const;

 private:
  std::vector<size_t> items_;        // sample after sample
  std::vector<size_t> first_items_;  // by sample; after the last one, the number of all
};

// `sizes`: the places that each item takes in each of the `rows`, [item][row]. None is larger than `room`, the places of a row.
FittedItems first_fit(std::span<const int64_t> sizes, size_t rows, int64_t room);

}  // namespace trivet::data
