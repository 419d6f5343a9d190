// Which steps of a directory a save removes.
//
// `keep` counts clean steps, those saved when the last step was not skipped. What was saved while steps are skipped holds no
// newer weights than the clean step before it, so it never takes that one's place:
//
//   newest step                              stays, clean or not: a resume goes on from there
//   newest `keep` clean steps                stay
//   newest clean step that a later one was
//   trained from                             stays: until then nobody knows whether its weights still give a finite loss
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
