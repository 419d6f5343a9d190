// How the tokens of a step were divided among the experts of a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace trivet {

struct ExpertLoad {
  std::string layer;            // its name in the model, "blocks.3"
  std::vector<int64_t> tokens;  // that each expert computed, on all ranks; a token counts once for each of its experts

  bool operator==(const ExpertLoad&) const = default;

  int64_t total() const { return std::accumulate(tokens.begin(), tokens.end(), int64_t{0}); }
  // How many times as many as the mean the expert with most tokens computed; 1 at perfect balance.
  double fullest() const {
    const int64_t all = total();
    return all == 0 ? 1
                    : static_cast<double>(*std::ranges::max_element(tokens)) * static_cast<double>(tokens.size()) /
                          static_cast<double>(all);
  }
  // Experts that computed less than one hundredth of the mean.
  int64_t idle() const {
    const int64_t all = total(), count = static_cast<int64_t>(tokens.size());
    return std::ranges::count_if(tokens, [&](int64_t own) { return own * count * 100 < all; });
  }
};

}  // namespace trivet
