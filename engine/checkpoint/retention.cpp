#include "engine/checkpoint/retention.h"

#include <algorithm>

namespace trivet::checkpoint {

std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps, int64_t keep) {
  std::vector<int64_t> removed;
  int64_t clean_steps = 0;    // newer than the one looked at
  int64_t most_updates = 0;   // of those newer ones
  bool trained_from = false;  // a newer clean step was trained from
  for (size_t i = steps.size(); i-- > 0;) {
    const SavedStep& step = steps[i];
    const bool newest = i + 1 == steps.size(), enough = clean_steps >= keep;
    bool stays = newest || !enough;
    if (step.content && step.content->clean) {
      const bool proven = most_updates > step.content->updates;
      stays = stays || (proven && !trained_from);
      trained_from = trained_from || proven;
      ++clean_steps;
    } else if (step.content) {
      stays = newest;
    }
    if (step.content) most_updates = std::max(most_updates, step.content->updates);
    if (!stays) removed.push_back(step.step);
  }
  std::reverse(removed.begin(), removed.end());
  return removed;
}

}  // namespace trivet::checkpoint
