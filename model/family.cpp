#include "model/family.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/sequential.h"
#include "model/transformer.h"

namespace trivet::model {

std::span<const Family> families() {
  static const Family all[] = {gpt_family(), llama_family(), sequential_family()};
  return all;
}

const Family& family_of(Type type) { return *std::ranges::find(families(), type, &Family::type); }

Model build(const Description& description) {
  if (const auto problem = find_problem(description))
    throw ConfigError(fmt::format("model.{}: {}", problem->key, problem->text));
  if (!family_of(description.type).reads_images && description.vocabulary_size < 1)
    throw ConfigError(
        fmt::format("model.vocabulary_size: {} is not accepted; give a number of at least 1", description.vocabulary_size));
  return family_of(description.type).build(with_defaults(description));
}

}  // namespace trivet::model
