#include "model/experts_problem.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::model {
namespace {

std::optional<Problem> find_choice_problem(const Experts& experts) {
  const kernels::ExpertRule& rule = experts.rule;
  if (experts.count % rule.groups != 0)
    return Problem{"experts.groups",
                   fmt::format("{} groups do not divide the {} experts; use a divisor", rule.groups, experts.count)};
  if (rule.groups_per_token > rule.groups)
    return Problem{"experts.groups_per_token",
                   fmt::format("{} is more than the {} groups; use at most that many", rule.groups_per_token, rule.groups)};
  const int64_t most = experts.count / rule.groups * rule.groups_per_token;
  if (experts.per_token > most)
    return Problem{"experts.per_token",
                   fmt::format("{} is more than the {} experts that a token chooses from; use at most that many",
                               experts.per_token, most)};
  return {};
}

}  // namespace

bool has_experts(const Description& d, int64_t block) {
  return d.experts.enabled() && std::ranges::find(d.experts.dense_blocks, block) == d.experts.dense_blocks.end();
}

std::optional<Problem> find_experts_problem(const Description& d) {
  const Experts& experts = d.experts;
  if (!experts.enabled()) return {};
  for (const int64_t block : experts.dense_blocks)
    if (block >= d.layers)
      return Problem{
          "experts.dense_blocks",
          fmt::format("there is no block {}, as model.layers is {}; use numbers from 0 to {}", block, d.layers, d.layers - 1)};
  bool all_dense = true;
  for (int64_t block = 0; block < d.layers; ++block) all_dense = all_dense && !has_experts(d, block);
  if (all_dense) return Problem{"experts.dense_blocks", "has all blocks, so that none has experts; leave some out"};
  if (d.gate_activation != GateActivation::Silu)
    return Problem{"experts.count",
                   "experts have the activation \"silu\" alone in this version; leave model.gate_activation out"};
  const char* const loss = experts.balance_loss > 0 ? "experts.balance_loss" : "experts.z_loss";
  const bool has_loss = experts.balance_loss > 0 || experts.z_loss > 0;
  if (has_loss && d.objective == Objective::Dpo)
    return Problem{loss, "is not accepted with model.objective \"dpo\", whose loss is no sum over tokens; use 0"};
  // They do not know which of the tokens that they keep are targets.
  if (has_loss && d.objective == Objective::Sft && d.token_drop.enabled)
    return Problem{loss, "is not accepted with model.objective \"sft\" and blocks that leave tokens out; use 0"};
  // Padding would count, too.
  if (d.objective != Objective::NextToken && experts.correction_bias && experts.bias_update_rate > 0 && !d.lora.enabled())
    return Problem{
        "experts.bias_update_rate",
        fmt::format("{} is not accepted with model.objective \"sft\" or \"dpo\", where not all tokens are targets; use "
                    "0, which keeps the biases as they are",
                    experts.bias_update_rate)};
  return find_choice_problem(experts);
}

std::string experts_tensor_problem(const Description& d, int64_t ranks) {
  if (!d.experts.enabled()) return "";
  if (d.experts.feed_forward_size % ranks != 0)
    return fmt::format("does not divide model.experts.feed_forward_size {}", d.experts.feed_forward_size);
  if (d.experts.shared_feed_forward_size % ranks != 0)
    return fmt::format("does not divide model.experts.shared_feed_forward_size {}", d.experts.shared_feed_forward_size);
  return "";
}

}  // namespace trivet::model
