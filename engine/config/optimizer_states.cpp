#include "engine/config/optimizer_states.h"

#include <algorithm>
#include <stdexcept>

namespace trivet {
namespace {

struct OptimizerFacts {
  std::vector<std::string> states, scalars = {};
  std::vector<int> own_states = {};
  bool visits_once = true, betas_cycle = false;
};

OptimizerFacts facts_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::Adam:
    case OptimizerType::AdamW: return {.states = {"moment1", "moment2"}, .betas_cycle = true};
    case OptimizerType::OneBitAdam: return {.states = {"moment1", "moment2"}, .visits_once = false};
    // A momentum before signs were averaged is kept where the update will be.
    case OptimizerType::OneBitLamb:
      return {.states = {"moment1", "moment2", "update", "fresh_moment2"},
              .scalars = {"frozen_ratio", "ratio_factor"},
              .visits_once = false};
    case OptimizerType::ZeroOneAdam:
      return {
          .states = {"moment1", "moment2", "momentum_sum"}, .scalars = {"lr_sum"}, .own_states = {0, 2}, .visits_once = false};
    case OptimizerType::Sgd: return {.states = {"momentum"}};
    case OptimizerType::Lion: return {.states = {"moment"}, .betas_cycle = true};
    case OptimizerType::Lamb: return {.states = {"moment1", "moment2", "update"}, .visits_once = false, .betas_cycle = true};
    case OptimizerType::Adagrad: return {.states = {"sum_of_squares"}};
    // For matrices: the momentum, and room for the update.
    case OptimizerType::Muon: return {.states = {"moment1", "moment2"}, .visits_once = false};
  }
  throw std::logic_error("optimizer: nothing is known of a type");
}

// ---- 0/1 Adam

// In an update until var_freeze_step. Refreshes are the multiples of an interval, which doubles after every var_update_scaler
// of them.
bool refreshes_variance(const OptimizerConfig& config, int64_t update) {
  int64_t first = 1, interval = 1;
  while (update >= first) {
    if ((update - first) / interval < config.var_update_scaler) return update % interval == 0;
    const int64_t last = first + (config.var_update_scaler - 1) * interval;
    interval *= 2;
    first = (last / interval + 1) * interval;
  }
  return false;
}

// The interval of synchronisations at an update after var_freeze_step. It doubles after every local_step_scaler updates.
int64_t local_interval(const OptimizerConfig& config, int64_t update) {
  const int64_t doublings = (update - config.var_freeze_step - 1) / config.local_step_scaler;
  int64_t interval = 1;
  for (int64_t i = 0; i < doublings && interval < config.local_step_clipper; ++i) interval *= 2;
  return std::min(interval, config.local_step_clipper);
}

UpdateKind kind_of_zero_one_update(const OptimizerConfig& config, int64_t update) {
  if (update <= config.var_freeze_step)
    return refreshes_variance(config, update) ? UpdateKind::SumsGradients : UpdateKind::SendsSigns;
  return update % local_interval(config, update) == 0 ? UpdateKind::EndsLocalUpdates : UpdateKind::Local;
}

}  // namespace

int optimizer_states(OptimizerType type, const OptimizerConfig& config) {
  return static_cast<int>(optimizer_state_names(type, config).size());
}

std::vector<std::string> optimizer_state_names(OptimizerType type, const OptimizerConfig& config) {
  if (type == OptimizerType::Sgd && !(config.momentum > 0)) return {};
  return facts_of(type).states;
}

std::vector<std::string> optimizer_scalar_names(OptimizerType type) { return facts_of(type).scalars; }

std::vector<int> own_optimizer_states(OptimizerType type) { return facts_of(type).own_states; }

bool may_send_signs(OptimizerType type) {
  return type == OptimizerType::OneBitAdam || type == OptimizerType::OneBitLamb || type == OptimizerType::ZeroOneAdam;
}

UpdateKind kind_of_update(const OptimizerConfig& config, int64_t update) {
  if (!may_send_signs(config.type)) return UpdateKind::SumsGradients;
  if (config.type == OptimizerType::ZeroOneAdam) return kind_of_zero_one_update(config, update);
  return update > config.freeze_step ? UpdateKind::SendsSigns : UpdateKind::SumsGradients;
}

// Kinds of 0/1 Adam begin where an interval doubles. The interval may become larger once more before the update that follows
// (from 2 to 3, say, the longest one), so that both are synchronisations; the third then is none.
std::vector<int64_t> updates_of_all_kinds(const OptimizerConfig& config) {
  if (!may_send_signs(config.type)) return {1};
  if (config.type != OptimizerType::ZeroOneAdam) return {1, config.freeze_step + 2};
  std::vector<int64_t> updates{1};
  const auto add_first = [&](UpdateKind kind, int64_t from) {
    for (const int64_t update : {from, from + 1, from + 2})
      if (kind_of_update(config, update) == kind) return updates.push_back(update);
  };
  add_first(UpdateKind::SendsSigns, config.var_update_scaler + 1);
  add_first(UpdateKind::Local, config.var_freeze_step + config.local_step_scaler + 1);
  updates.push_back(config.var_freeze_step + 1);
  return updates;
}

bool visits_states_once(OptimizerType type) { return facts_of(type).visits_once; }
bool betas_cycle(OptimizerType type) { return facts_of(type).betas_cycle; }

}  // namespace trivet
