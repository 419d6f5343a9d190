#include "model/description.h"

#include <fmt/format.h>

#include "model/family.h"
#include "tensor_parallel/cuts.h"

namespace trivet::model {
namespace {

std::optional<Problem> not_positive(const Description& d) {
  const std::pair<const char*, int64_t> sizes[] = {{"layers", d.layers},
                                                   {"hidden_size", d.hidden_size},
                                                   {"heads", d.heads},
                                                   {"key_value_heads", d.key_value_heads},
                                                   {"feed_forward_size", d.feed_forward_size},
                                                   {"sequence_length", d.sequence_length}};
  for (const auto& [key, value] : sizes)
    if (value < 1) return Problem{key, fmt::format("{} is not accepted; give a number of at least 1", value)};
  return {};
}

}  // namespace

Description with_defaults(Description d) {
  if (d.key_value_heads == 0) d.key_value_heads = d.heads;
  if (d.feed_forward_size == 0) d.feed_forward_size = family_of(d.type).feed_forward_size(d.hidden_size);
  return d;
}

std::optional<Problem> find_problem(const Description& given) {
  const Description d = with_defaults(given);
  if (const auto problem = not_positive(d)) return problem;
  if (d.hidden_size % d.heads != 0)
    return Problem{"heads", fmt::format("{} heads do not divide model.hidden_size {}; use a divisor", d.heads, d.hidden_size)};
  if (d.heads % d.key_value_heads != 0)
    return Problem{"key_value_heads",
                   fmt::format("{} does not divide model.heads {}; use a divisor", d.key_value_heads, d.heads)};
  if (!(d.dropout >= 0 && d.dropout < 1))
    return Problem{"dropout", fmt::format("{} is not accepted; give a number of at least 0 and less than 1", d.dropout)};
  return family_of(d.type).find_problem(d);
}

std::string tensor_problem(const Description& given, int64_t ranks, bool fixed_sums) {
  const Description d = with_defaults(given);
  if (d.heads % ranks != 0) return fmt::format("does not divide model.heads {}", d.heads);
  if (d.key_value_heads % ranks != 0 && ranks % d.key_value_heads != 0)
    return fmt::format("neither divides model.key_value_heads {} nor is a multiple of it", d.key_value_heads);
  if (d.feed_forward_size % ranks != 0)
    return fmt::format("does not divide model.feed_forward_size {}{}", d.feed_forward_size,
                       given.feed_forward_size > 0 ? "" : fmt::format(", the default for hidden_size {}", d.hidden_size));
  if (d.vocabulary_size > 0 && d.vocabulary_size < ranks)
    return fmt::format("is more than model.vocabulary_size {}", d.vocabulary_size);
  if (!fixed_sums) return "";
  if (tensor_parallel::kSumChunks % ranks != 0) return tensor_parallel::kNoDivisorOfSumChunks;
  if (d.key_value_heads % ranks != 0)
    return fmt::format("does not divide model.key_value_heads {}, as reproducible \"layout\" requires", d.key_value_heads);
  return "";
}

}  // namespace trivet::model
