#include "engine/config/context_kind.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/description.h"

namespace trivet::config {

std::string ulysses_problem(const Config& config, int64_t ranks) {
  const int64_t tensor = config.parallel.tensor;
  if (std::string problem = model::ulysses_problem(config.model, ranks, tensor); !problem.empty()) return problem;
  if (const int64_t keys = model::with_defaults(config.model).key_value_heads / tensor;
      config.fixes_token_sums() && keys < ranks)
    return fmt::format(
        "{} is more than the {} of model.key_value_heads on a tensor rank, whose gradients several ranks would sum, which "
        "reproducible \"layout\" does not allow",
        ranks, std::max<int64_t>(keys, 1));
  return "";
}

ContextKind context_kind(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context == 1) return ContextKind::Ulysses;
  if (parallel.context_kind != ContextKind::Auto) return parallel.context_kind;
  return ulysses_problem(config, parallel.context).empty() ? ContextKind::Ulysses : ContextKind::Gather;
}

SequencePart::Cut context_cut(const Config& config) {
  return context_kind(config) != ContextKind::Ulysses && !config.fixes_token_sums() ? SequencePart::Cut::Balanced
                                                                                    : SequencePart::Cut::InOrder;
}

std::string describe_context(const Config& config) {
  const int64_t ranks = config.parallel.context;
  if (ranks == 1) return "";
  const ContextKind kind = context_kind(config);
  if (kind == ContextKind::Ulysses)
    return fmt::format("attention {} context ranks exchange tokens for heads (ulysses)\n", ranks);
  std::string text =
      fmt::format("attention {} context ranks {} keys and values", ranks, kind == ContextKind::Gather ? "gather" : "hand on");
  if (config.parallel.context_kind == ContextKind::Auto) text += fmt::format(", because {}", ulysses_problem(config, ranks));
  if (context_cut(config) == SequencePart::Cut::Balanced)
    text += "; each has two chunks of a sequence, an early and a late one, so that all see as many keys";
  return text + "\n";
}

}  // namespace trivet::config
