// From JSON in DeepSpeed's vocabulary to a checked Config.
//
// All mistakes found in keys and values are reported together, one a line, in the order of the file:
//   configs/gpt.json:14:9: zero_optimization.reduce_bucket_sise: unknown key; did you mean "reduce_bucket_size"?
// What contradicts across keys is reported after that, one at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/config.h"

namespace trivet {

// An override is "dotted.key=value"; the value is read as JSON, or taken as a string if it is none.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});
Config parse_config(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides = {});

// What must hold between keys; load_config calls it, a Config made by hand can be passed to it. Throws ConfigError.
void check(const Config& config);

// "optimizer.params.torch_adam: there is one Adam": keys that were given and have no effect in this run, each with the reason.
std::vector<std::string> accepted_without_effect(const Config& config);

// Was this key, or any key of this section, given by the file or the command line?
bool is_given(const Config& config, const std::string& path);

}  // namespace trivet
