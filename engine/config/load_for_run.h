// Reads the config of a run of `trivet train`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/config.h"

namespace trivet {

enum class AskForModel { Yes, No };

// Like parse_config, but the report of mistakes also has what training refuses and the config alone shows: a batch that no
// number of ranks can train, a step to profile after the last one, what running averages do not go with, and a missing model.
Config parse_config_for_run(std::string_view text, const std::string& source_name,
                            const std::vector<std::string>& overrides = {}, const std::vector<std::string>& defaults = {},
                            AskForModel model = AskForModel::Yes);

}  // namespace trivet
