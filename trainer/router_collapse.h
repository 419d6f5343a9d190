// Says when the router of a block has collapsed: most of its experts compute nothing, so that they learn nothing either.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/expert_load.h"

namespace trivet {

class RouterCollapse {
 public:
  // Returns a text for each block of which at least half of the experts have been idle in `kSteps` steps in a row; a block is
  // named once, and again only if it has recovered in between. Steps with fewer than 8 choices for each expert say nothing.
  std::vector<std::string> look_at(int64_t step, const std::vector<ExpertLoad>& blocks);

  static constexpr int kSteps = 10;

 private:
  std::map<std::string, int> bad_steps_;  // by layer; in a row
};

}  // namespace trivet
