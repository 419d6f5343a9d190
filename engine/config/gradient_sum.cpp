#include "engine/config/gradient_sum.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "engine/config/config.h"
#include "engine/config/refuse.h"

namespace trivet::config {

bool sums_gradients(const Config& config) {
  const GivenKey* given = find_given(config, "gradient_allreduce_op");
  const std::string_view sum = "\"sum\"";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return given && std::equal(given->value.begin(), given->value.end(), sum.begin(), sum.end(), same);
}

}  // namespace trivet::config
