// Refuses a config whose keys contradict each other; the message gives the position of the key that it names.
#pragma once

#include <string>

namespace trivet {
struct Config;
struct GivenKey;
}  // namespace trivet

namespace trivet::config {

const GivenKey* find_given(const Config& config, const std::string& path);

// The key as it was given, possibly under its other name (pipeline.stages for parallel.pipeline).
const GivenKey* find_given_or_alias(const Config& config, const std::string& path);

// Returns what gave the key, as messages about an earlier run begin with it: "--set", or the config.
std::string source_of(const Config& config, const std::string& path);

// Throws ConfigError: "gpt.json:3:14: parallel.tensor: what"; there is no position if the key was not given.
[[noreturn]] void refuse(const Config& config, const std::string& path, const std::string& what);

// Checks the axes and the pipeline; then what they require of the model that the config describes.
void check_parallel(const Config& config);
void check_layout_of_model(const Config& config);

// What does not go together with ranks that share experts, in this version: "device \"cuda\": GPUs do not ...". Empty: the
// config gives nothing of that. It need not have such ranks.
std::string shared_experts_problem(const Config& config);

// Checks what data.grows is given together with.
void check_growing_data(const Config& config);

// Checks offload_param and offload_optimizer.
void check_offload(const Config& config);

}  // namespace trivet::config
