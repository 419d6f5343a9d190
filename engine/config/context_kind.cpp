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

namespace {

// The ranks of "ulysses_ring" that exchange tokens for heads: 1 and all ranks are possible, too.
int64_t exchanging_ranks(const Config& config) {
  const int64_t ranks = config.parallel.context;
  if (config.parallel.context_ulysses > 0) return config.parallel.context_ulysses;
  for (int64_t most = ranks; most > 1; --most)
    if (ranks % most == 0 && ulysses_problem(config, most).empty()) return most;
  return 1;
}

std::string describe_kind(const Config& config) {
  const int64_t ranks = config.parallel.context;
  switch (context_kind(config)) {
    case ContextKind::Ulysses: return fmt::format("{} context ranks exchange tokens for heads (ulysses)", ranks);
    case ContextKind::Gather: return fmt::format("{} context ranks gather keys and values", ranks);
    case ContextKind::Ring: return fmt::format("{} context ranks hand on keys and values", ranks);
    default: break;
  }
  const int64_t neighbours = context_neighbours(config);
  return fmt::format("{} context ranks: runs of {} exchange tokens for heads, and {} such runs hand on keys and values", ranks,
                     neighbours, ranks / neighbours);
}

std::string why(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context_kind == ContextKind::Auto && context_kind(config) == ContextKind::Gather)
    return ", because " + ulysses_problem(config, parallel.context);
  if (parallel.context_kind != ContextKind::UlyssesRing || context_neighbours(config) > 1) return "";
  const bool ring = context_kind(config) == ContextKind::Ring;
  if (parallel.context_ulysses > 0)
    return fmt::format(", because parallel.context_ulysses is {}{}", parallel.context_ulysses,
                       ring ? "" : ", which leaves nothing for a ring");
  return ring ? ", because the heads allow no number of them to exchange tokens for heads"
              : ", because the heads allow it for all, which leaves nothing for a ring";
}

}  // namespace

ContextKind context_kind(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context == 1) return ContextKind::Ulysses;
  if (parallel.context_kind == ContextKind::UlyssesRing) {
    const int64_t exchanging = exchanging_ranks(config);
    if (exchanging == parallel.context) return ContextKind::Ulysses;
    return exchanging == 1 ? ContextKind::Ring : ContextKind::UlyssesRing;
  }
  if (parallel.context_kind != ContextKind::Auto) return parallel.context_kind;
  return ulysses_problem(config, parallel.context).empty() ? ContextKind::Ulysses : ContextKind::Gather;
}

int64_t context_neighbours(const Config& config) {
  return context_kind(config) == ContextKind::UlyssesRing ? exchanging_ranks(config) : 1;
}

SequencePart::Cut context_cut(const Config& config) {
  return context_kind(config) != ContextKind::Ulysses && !config.fixes_token_sums() ? SequencePart::Cut::Balanced
                                                                                    : SequencePart::Cut::InOrder;
}

std::string describe_context(const Config& config) {
  if (config.parallel.context == 1) return "";
  std::string text = "attention " + describe_kind(config) + why(config);
  if (context_cut(config) == SequencePart::Cut::Balanced)
    text += fmt::format("; each {}has two chunks of a sequence, an early and a late one, so that all see as many keys",
                        context_neighbours(config) > 1 ? "run " : "");
  return text + "\n";
}

}  // namespace trivet::config
