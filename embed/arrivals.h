// Tracks which gradients of a microbatch have arrived, and which units may be summed over ranks next.
//
// A unit is complete when the gradients of all its trainable parameters have arrived. All ranks must sum units in the same
// order, whatever the order in which gradients arrive, so the order is fixed: the last unit first, because a backward pass
// usually ends at the first. A unit that is complete waits for those before it in this order.
//
//   units         0   1   2   3
//   complete          x       x      complete_from() = 3; next() = 3, then none: 2 is missing, and 1 waits for it
#pragma once

#include <optional>
#include <vector>

namespace trivet::embed {

class Arrivals {
 public:
  // [unit] how many gradients it gets in a microbatch. A unit of frozen parameters gets none.
  explicit Arrivals(std::vector<int> gradients_of_unit);

  void begin_microbatch();
  // Returns whether this was the last gradient that was missing.
  bool arrived(int unit) { return --missing_[unit] == 0; }
  bool is_complete(int unit) const { return missing_[unit] == 0; }
  // No more gradients of this microbatch will arrive: all units are complete.
  void end_microbatch();
  // The lowest unit that is complete together with all after it; the number of units if the last is not complete.
  int complete_from() const;
  // The next unit in the order if it is complete and not below `from`. Each unit is returned once in a microbatch.
  std::optional<int> next(int from = 0);

 private:
  std::vector<int> gradients_of_unit_, missing_;  // [unit]
  int next_ = 0;
};

}  // namespace trivet::embed
