// What a user of DeepSpeed should know of a config that was written for DeepSpeed.
#pragma once

#include <string>
#include <vector>

namespace trivet {

struct Config;

// Whether the config has something that only a config for DeepSpeed has: "auto", or a key without effect here.
bool is_written_for_deepspeed(const Config& config);

// What was taken for "auto": "optimizer.params.lr: \"auto\" is 0.00005, the default of Hugging Face's Trainer ...".
std::vector<std::string> auto_lines(const Config& config);

// Where this run differs from DeepSpeed's with the same config. Empty if the config was not written for DeepSpeed.
std::vector<std::string> differences_from_deepspeed(const Config& config);

// In DeepSpeed the program has the model, so its configs say nothing about one. Throws ConfigError if this is such a config.
void check_model_is_given(const Config& config);

// docs/deepspeed.md: what becomes of each key of DeepSpeed.
std::string deepspeed_reference();

}  // namespace trivet
