#include "model/description.h"

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

}  // namespace trivet::model
