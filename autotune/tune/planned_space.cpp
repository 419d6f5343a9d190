// Plans all configs of a space; all ranks share the work.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/tune/tuning_space.h"
#include "comm/participants.h"
#include "core/error.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

// [memory_bytes, train_batch_size, model_flops], or the reason why there is no plan.
nlohmann::json plan_one(const TrialConfig& trial, const model::Model& model, int world_size) {
  try {
    const Plan plan = make_plan(trial.config, model, world_size);
    return {plan.heaviest().memory.total(), plan.batch.train_batch_size, plan.model_flops_per_step};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// Removes "config.json:3:7: " and "--set: ", which say nothing here, because the refused values are the tuner's own.
std::string without_place(const std::string& reason, const std::string& source) {
  for (const std::string& place : {source, std::string("--set")})
    if (reason.starts_with(place + ":")) return reason.substr(std::min(reason.find(' ', place.size()), reason.size() - 1) + 1);
  return reason;
}

// Positions in 0 ... count-1, including the first and the last.
std::vector<size_t> evenly_spread(size_t count, size_t most) {
  std::vector<size_t> chosen;
  if (most >= count) most = count;
  for (size_t i = 0; i < most; ++i) chosen.push_back(most == 1 ? count - 1 : (i * (count - 1) + (most - 1) / 2) / (most - 1));
  return chosen;
}

// Returns the overrides shared by trials that differ only in the microbatch.
std::string layout_of(const TrialConfig& trial) {
  std::string text;
  for (const std::string& override_ : trial.overrides)
    if (!override_.starts_with("train_micro_batch") && !override_.starts_with("gradient_accum")) text += override_ + " ";
  return text;
}

std::vector<TrialConfig> with_fewer_microbatches(std::vector<TrialConfig> trials, int64_t most) {
  std::map<std::string, std::vector<size_t>> fitting;
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].fits) fitting[layout_of(trials[i])].push_back(i);
  std::vector<bool> chosen(trials.size(), false);
  for (const auto& [layout, all] : fitting)
    for (const size_t i : evenly_spread(all.size(), most)) chosen[all[i]] = true;
  std::vector<TrialConfig> left;
  for (size_t i = 0; i < trials.size(); ++i)
    if (chosen[i] || !trials[i].fits) left.push_back(std::move(trials[i]));
  return left;
}

[[noreturn]] void refuse_empty(const TuningSpace& space, const Config& config, int64_t memory_bytes) {
  if (space.trials.empty())
    throw ConfigError(fmt::format("{}: autotuning: no config is left to try{}", config.source,
                                  space.refused.empty()
                                      ? "; widen min_ and max_train_micro_batch_size_per_gpu or min_ and max_train_batch_size"
                                      : fmt::format(": {} were refused, such as {}: {}", space.refused.front().configs,
                                                    space.refused.front().example, space.refused.front().reason)));
  const TrialConfig& smallest = *std::ranges::min_element(space.trials, {}, &TrialConfig::memory_bytes);
  throw OutOfMemoryError(fmt::format("{}: autotuning: no config fits into {:.2f} GiB a rank; the smallest, {}, needs {:.2f}",
                                     config.source, static_cast<double>(memory_bytes) / (1 << 30), smallest.name,
                                     static_cast<double>(smallest.memory_bytes) / (1 << 30)));
}

}  // namespace

TuningSpace plan_space(TuningSpace space, const Config& config, const model::Model& model, int64_t memory_bytes,
                       comm::World& world) {
  const size_t size = world.size();
  nlohmann::json mine = nlohmann::json::array();
  for (size_t i = world.rank(); i < space.trials.size(); i += size)
    mine.push_back(plan_one(space.trials[i], model, world.size()));
  std::vector<nlohmann::json> plans;
  for (const std::string& text : comm::over_group(world.group()).gather(mine.dump()))
    plans.push_back(nlohmann::json::parse(text));

  for (RefusedConfigs& refused : space.refused) refused.reason = without_place(refused.reason, config.source);
  std::vector<TrialConfig> planned;
  for (size_t i = 0; i < space.trials.size(); ++i) {
    TrialConfig& trial = space.trials[i];
    const nlohmann::json& plan = plans[i % size][i / size];
    if (plan.is_string()) {
      space.count_refused(without_place(plan.get<std::string>(), config.source), trial.name);
      continue;
    }
    trial.memory_bytes = plan[0];
    trial.train_batch_size = plan[1];
    trial.model_flops = plan[2];
    trial.fits = trial.memory_bytes <= memory_bytes;
    planned.push_back(std::move(trial));
  }
  space.trials = with_fewer_microbatches(std::move(planned), config.autotuning.micro_batch_sizes);
  for (size_t i = 0; i < space.trials.size(); ++i) space.trials[i].id = static_cast<int64_t>(i);
  if (std::ranges::none_of(space.trials, &TrialConfig::fits)) refuse_empty(space, config, memory_bytes);
  return space;
}

TuningSpace planned_space(const ConfigDocument& document, const Config& config, const model::Model& model, int64_t memory_bytes,
                          comm::World& world) {
  try {
    return plan_space(enumerate(document, world.size()), config, model, memory_bytes, world);
  } catch (const CommError&) {
    throw;
  } catch (const Error&) {  // on all ranks
    TuningSpace shared = enumerate(document, world.size(), ContextSearch::Always);
    if (shared.context.empty() || config.model.sequence_length >= kLongSequence) throw;
    return plan_space(std::move(shared), config, model, memory_bytes, world);
  }
}

}  // namespace trivet::autotune
