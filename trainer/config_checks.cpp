#include "trainer/config_checks.h"

#include <fmt/format.h>

#include "comm/participants.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/config/deepspeed.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "trainer/initial_weights.h"

namespace trivet::trainer {

void require(bool given, const Config& config, const std::string& key, const std::string& advice) {
  if (!given) throw ConfigError(fmt::format("{}: {}: is not given; {}", config.source, key, advice));
}

void check_complete(const Config& config) {
  require(config.model_from.empty() || config.given.empty() || describes_model(config), config, "the model of model.from",
          "read the config with trainer::load_with_model, which takes the keys of the section from there");
  const bool no_data = !config.data.is_given(), no_end = config.training.steps == 0 && config.training.epochs == 0;
  require(!(no_data && no_end), config, "data.train, training.steps",
          "name the data to train on (docs/data.md), and say how long to train (steps or epochs)");
  require(!no_data, config, "data.train", "name the data to train on (docs/data.md)");
  require(!no_end, config, "training.steps", "say how long to train (steps or epochs)");
}

void check_same_config(const Config& config, comm::World& world, const TrainOptions& options) {
  if (world.size() == 1) return;
  const auto ranks = comm::over_group(world.group());
  const auto configs = ranks.gather(explain_as_json(config));
  // --resume changes what ranks do together as much as a key does.
  const auto resumes = ranks.gather(options.resume ? "\"" + printable(options.resume_directory) + "\"" : "not given");
  const std::string& weights = initial_weights_of(config, options);
  const auto beginnings = ranks.gather(weights.empty() ? "not given" : "\"" + printable(weights) + "\"");
  for (size_t rank = 1; rank < configs.size(); ++rank) {
    if (configs[rank] == configs[0] && resumes[rank] == resumes[0] && beginnings[rank] == beginnings[0]) continue;
    std::string differing;
    const auto add = [&](const std::string& what, const std::string& on_rank_0, const std::string& here) {
      differing += fmt::format("; {} is {} on rank 0, {} on rank {}", what, on_rank_0, here, rank);
    };
    for (const auto& change : diff(parse_config(configs[0], "rank 0"), parse_config(configs[rank], "another rank")))
      add(change.path, change.before, change.after);
    if (resumes[rank] != resumes[0]) add("--resume", resumes[0], resumes[rank]);
    if (beginnings[rank] != beginnings[0]) add("--init-from", beginnings[0], beginnings[rank]);
    throw CommError(ExitCode::RanksDisagree, fmt::format("config: rank 0 and rank {} differ{}; start all ranks with the same "
                                                         "config and flags",
                                                         rank, differing));
  }
}

}  // namespace trivet::trainer
