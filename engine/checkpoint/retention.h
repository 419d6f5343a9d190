// Decides which steps of a directory a save removes.
//
// A step is clean if the training step just before the save was not skipped. Steps with the same number of updates hold the
// same weights. A step that is not clean never takes the place of a clean one, but its weights may be newer:
//
//   newest step                              stays, clean or not: a resume continues from it
//   newest `keep` clean steps                stay
//   newest clean step whose weights a later
//   step has updated                         stays: before an update, nobody knows whether the weights give a finite loss
//   steps that are not clean                 stay if no other step that stays holds the same weights, until `keep` steps with
//                                            newer weights stay
//   damaged steps                            stay until `keep` clean steps are newer
//   the best step, by its evaluation         stays, in addition to all of these
//   other steps                              are removed
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trivet::checkpoint {

struct SavedStep {
  struct Content {
    int64_t updates = 0;
    bool clean = true;
  };
  int64_t step = 0;
  std::optional<Content> content;  // empty: damaged, or not readable at the moment
};

// `steps`: ascending, the last is the one just saved. `keep` >= 1. `best`: 0 if no step is the best. Returns the steps to
// remove, ascending.
std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps, int64_t keep, int64_t best = 0);

}  // namespace trivet::checkpoint
