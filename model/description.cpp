#include "model/description.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/family.h"

namespace trivet::model {

Description with_defaults(const Description& description) { return family_of(description.type).with_defaults(description); }

std::optional<Problem> find_problem(const Description& description) {
  return family_of(description.type).find_problem(with_defaults(description));
}

int64_t block_count(const Description& description) { return family_of(description.type).block_count(description); }
std::string blocks_in_words(const Description& description) { return family_of(description.type).blocks_in_words(description); }

std::string tensor_problem(const Description& description, int64_t ranks, bool fixed_sums) {
  return family_of(description.type).tensor_problem(description, ranks, fixed_sums);
}

std::string ulysses_problem(const Description& description, int64_t ranks, int64_t tensor) {
  const Description model = with_defaults(description);
  if (family_of(model.type).reads_images) return "the model reads images";
  if (model.heads % (ranks * tensor) != 0)
    return fmt::format("{}{} does not divide model.heads {}, which context ranks share in attention", ranks,
                       tensor == 1 ? "" : fmt::format(" (with parallel.tensor {}: {})", tensor, ranks * tensor), model.heads);
  if (const int64_t keys = std::max<int64_t>(model.key_value_heads / tensor, 1); keys % ranks != 0 && ranks % keys != 0)
    return fmt::format("{} and the {} of model.key_value_heads on a tensor rank do not divide each other", ranks, keys);
  return "";
}

}  // namespace trivet::model
