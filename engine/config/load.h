// Turns JSON in DeepSpeed's vocabulary into a checked Config.
//
// All mistakes found in keys and values are reported together, one per line, in the order of the file:
//   configs/gpt.json:14:9: zero_optimization.reduce_bucket_sise: unknown key; did you mean "reduce_bucket_size"?
// Contradictions between keys are reported after that, one at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/config.h"

namespace trivet {

// An override is "dotted.key=value"; the value is read as JSON, or taken as a string if it is not JSON. `defaults` are written
// the same way and hold for keys that neither the file nor an override gives.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                   const std::vector<std::string>& defaults = {});
Config parse_config(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides = {},
                    const std::vector<std::string>& defaults = {});

// Reads the text of a config from `path`. Throws ConfigError if it cannot be read, or is too long for a config.
std::string read_config_text(const std::string& path);
// The value of model.from in this text with these overrides; empty: it is not given. Throws ConfigError if the text is not
// JSON. Such a config is complete only with the keys of that model (trainer/load_with_model.h); without them, load_config
// leaves the model unchecked.
std::string model_from_in(std::string_view text, const std::string& source_name, const std::vector<std::string>& overrides);

// Checks the constraints between keys. load_config calls it; call it yourself for a Config built by hand. Throws ConfigError.
void check(const Config& config);
// Does the same for a model of your own layers, about which the section "model" says nothing.
void check_without_model(const Config& config);

// Checks that some number of data-parallel ranks can train the batch that the config describes; resolve_batch solves it for a
// given number. load_config does not call it, because `trivet tune` and your own code may complete the batch. Throws
// ConfigError.
void check_batch(const Config& config);

// Given keys that have no effect in this run, each with the reason: "optimizer.params.torch_adam: Trivet has only one Adam".
std::vector<std::string> accepted_without_effect(const Config& config);

// Checks whether this key, or any key of this section, was set in the file or on the command line.
bool is_given(const Config& config, const std::string& path);

}  // namespace trivet
