#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <set>

namespace trivet::checkpoint {
namespace {

bool is_clean(const SavedStep& step) { return step.content && step.content->clean; }

// Returns whether each step stays, leaving out the steps that are not clean, except the newest.
std::vector<bool> clean_and_damaged_that_stay(const std::vector<SavedStep>& steps, int64_t keep) {
  std::vector<bool> stays(steps.size());
  int64_t clean_steps = 0;    // newer than the current one
  int64_t most_updates = 0;   // among the newer steps
  bool trained_from = false;  // a newer clean step was trained from
  for (size_t i = steps.size(); i-- > 0;) {
    const SavedStep& step = steps[i];
    const bool newest = i + 1 == steps.size(), enough = clean_steps >= keep;
    stays[i] = newest || (!enough && (is_clean(step) || !step.content));
    if (is_clean(step)) {
      const bool proven = most_updates > step.content->updates;
      stays[i] = stays[i] || (proven && !trained_from);
      trained_from = trained_from || proven;
      ++clean_steps;
    }
    if (step.content) most_updates = std::max(most_updates, step.content->updates);
  }
  return stays;
}

// Keeps, too, steps that are not clean but hold weights of their own, as long as fewer than `keep` newer weights stay.
void keep_weights_of_unclean_steps(const std::vector<SavedStep>& steps, int64_t keep, std::vector<bool>& stays) {
  std::set<int64_t> kept, newer;  // numbers of updates; equal numbers mean equal weights
  for (size_t i = 0; i < steps.size(); ++i)
    if (stays[i] && steps[i].content) kept.insert(steps[i].content->updates);
  for (size_t i = steps.size(); i-- > 0;) {
    if (!steps[i].content) continue;
    const int64_t updates = steps[i].content->updates;
    if (!steps[i].content->clean && !kept.contains(updates) && static_cast<int64_t>(newer.size()) < keep) stays[i] = true;
    if (!stays[i]) continue;
    kept.insert(updates);
    newer.insert(updates);
  }
}

}  // namespace

std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps, int64_t keep, int64_t best) {
  std::vector<bool> stays = clean_and_damaged_that_stay(steps, keep);
  keep_weights_of_unclean_steps(steps, keep, stays);
  std::vector<int64_t> removed;
  for (size_t i = 0; i < steps.size(); ++i)
    if (!stays[i] && steps[i].step != best) removed.push_back(steps[i].step);
  return removed;
}

}  // namespace trivet::checkpoint
