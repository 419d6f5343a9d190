#include "engine/trainer/config_checks.h"

#include <fmt/format.h>

#include "comm/participants.h"
#include "core/error.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"

namespace trivet::trainer {

void require(bool given, const Config& config, const std::string& key, const std::string& advice) {
  if (!given) throw ConfigError(fmt::format("{}: {}: is not given; {}", config.source, key, advice));
}

void check_complete(const Config& config) {
  const bool no_data = config.data.train.empty(), no_end = config.training.steps == 0 && config.training.epochs == 0;
  require(!(no_data && no_end), config, "data.train, training.steps",
          "name a text or token file to train on, and say how long to train (steps or epochs)");
  require(!no_data, config, "data.train", "name a text or token file to train on");
  require(!no_end, config, "training.steps", "say how long to train (steps or epochs)");
}

void check_same_config(const Config& config, comm::World& world, const TrainOptions& options) {
  if (world.size() == 1) return;
  // --resume changes what ranks do together as much as a key does.
  const std::string resume = options.resume ? "// --resume " + options.resume_directory : "";
  const auto texts = comm::over_group(world.group()).gather(explain_as_json(config) + resume);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    std::string differing;
    for (const auto& change : diff(parse_config(texts[0], "rank 0"), parse_config(texts[rank], "another rank")))
      differing += fmt::format("; {} is {} and {}", change.path, change.before, change.after);
    throw CommError(ExitCode::RanksDisagree,
                    fmt::format("config: rank 0 and rank {} were given different configs{}", rank, differing));
  }
}

}  // namespace trivet::trainer
