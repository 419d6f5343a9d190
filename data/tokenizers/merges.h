// The merges of a BPE vocabulary, and the loop that applies them.
//
// As long as two neighbours have a merge, the pair with the lowest rank is joined, leftmost first. Symbols are ids of the
// vocabulary, or any other numbers that occur in no merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trivet::data {

class MergeTable {
 public:
  explicit MergeTable(size_t merges);
  // A later merge of the same pair replaces an earlier one.
  void add(int32_t left, int32_t right, int32_t rank, int32_t result);
  void apply(std::vector<int32_t>& symbols) const;

 private:
  struct Merge {
    int32_t left = -1, right = -1;
    int32_t rank = 0, result = -1;
  };
  const Merge* find(int32_t left, int32_t right) const;
  Merge& slot_of(int32_t left, int32_t right);
  void grow();
  void apply_to_few(std::vector<int32_t>& symbols) const;
  void apply_to_many(std::vector<int32_t>& symbols) const;

  std::vector<Merge> slots_;  // open addressing; left < 0: empty
  size_t used_ = 0;
};

}  // namespace trivet::data
