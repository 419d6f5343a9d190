#include "trainer/router_collapse.h"

#include <fmt/format.h>

namespace trivet {

std::vector<std::string> RouterCollapse::look_at(int64_t step, const std::vector<ExpertLoad>& blocks) {
  std::vector<std::string> texts;
  for (const ExpertLoad& block : blocks) {
    const auto count = static_cast<int64_t>(block.tokens.size());
    if (block.total() < 8 * count) continue;
    int& bad = bad_steps_[block.layer];
    bad = 2 * block.idle() >= count ? bad + 1 : 0;
    if (bad == kSteps)
      texts.push_back(
          fmt::format("warning: in {}, {} of {} experts have computed next to nothing for {} steps, until step "
                      "{}: its router has collapsed; model.experts.balance_loss or correction_bias keep it from that "
                      "(docs/experts.md)",
                      block.layer, block.idle(), count, kSteps, step));
  }
  return texts;
}

}  // namespace trivet
