// Which steps of a directory a save removes.
//
// A step is clean if it was saved when the step just done was not skipped. Steps with the same number of updates hold the same
// weights. A step that is not clean never takes the place of a clean one, but its weights may be newer than theirs:
//
//   newest step                              stays, clean or not: a resume goes on from there
//   newest `keep` clean steps                stay
//   newest clean step whose weights a later
//   step has updated                         stays: before that, nobody knows whether they give a finite loss
//   steps that are not clean                 stay if no other step that stays holds the same weights, until `keep` newer
//                                            weights stay
//   damaged steps                            stay until `keep` clean ones are newer
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
  std::optional<Content> content;  // empty: damaged, or not readable now
};

// `steps`: ascending, the last is the one just saved. `keep` >= 1. Returns the steps to remove, ascending.
std::vector<int64_t> steps_to_remove(const std::vector<SavedStep>& steps, int64_t keep);

}  // namespace trivet::checkpoint
