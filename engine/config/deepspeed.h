// Lists what a user of DeepSpeed should know about a config.
#pragma once

#include <string>
#include <vector>

namespace trivet {

struct Config;

// Describes the values taken for "auto": "optimizer.params.lr: \"auto\" is 0.00005, the default of Hugging Face's
// Trainer ...". Those that decide most about the training come first.
std::vector<std::string> auto_lines(const Config& config);
// Logs those of them whose keys were not given at all (AutoKey::sentence): for commands that print no other line.
void tell_keys_not_given(const Config& config);
// The same for the start of a run, where many would hide the rest: "13 values of \"auto\" (...): fp16.enabled false, ...".
std::vector<std::string> auto_lines_in_short(const Config& config);

// Lists where this run differs from DeepSpeed with the same config, the important first (differences.cpp).
std::vector<std::string> differences_from_deepspeed(const Config& config);

// Lists settings that are allowed but probably not meant, such as a schedule that ends before its warm-up.
std::vector<std::string> warnings_of(const Config& config);
// Returns a note on adapters for a run that begins without the weights of a model; empty: none is needed.
std::string note_on_adapters(const Config& config);

// Checks whether the config says which model it trains. In DeepSpeed the program has the model, so its configs do not.
bool describes_model(const Config& config);
// Throws ConfigError if it does not.
void check_model_is_given(const Config& config);

// docs/deepspeed.md: what becomes of each key of DeepSpeed.
std::string deepspeed_reference();

}  // namespace trivet
