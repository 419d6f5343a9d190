// Knows what other programs call a key, and their files, so that a message can say what to write instead.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json_node.h"

namespace trivet::config {

// The path of the key that is meant by a name of another program: "gradient_clipping" for "max_grad_norm". Empty: not known.
std::string key_meant_by(const std::string& name);
// Describes how the value of that key differs from what the other name suggests: "steps, not a share of the run".
std::string difference_in_meaning(const std::string& name);

// A name in lower case, with "_" for "-".
std::string lower_words(const std::string& name);

// Returns names that users write at the top level by mistake for a key in a section: "fp16_enabled" for fp16.enabled,
// "optimizer_lr" and "optimizer_params_lr" for optimizer.params.lr. None for a key that has no section.
std::vector<std::string> paths_with_underscores(const std::string& path);

// Checks whether the words of a name hold those of another one in a row: "my_optimizer" has those of "optimizer".
bool has_words_of(const std::string& name, const std::string& words);

// Says what to do for a name that no key stands for: "resume_from_checkpoint" is a flag here. Empty: not known.
std::string advice_without_key(const std::string& name);

// "the section is called fp16 here" for "float16". Empty: not known.
std::string advice_on_renaming(const std::string& name);

// Checks whether the key with this path decides how weights change, so that its value must not be left out: not
// training.epochs, which the program that reads a config of DeepSpeed knows from elsewhere.
bool changes_weights(const std::string& path);

// Checks whether a top-level name is of a program that trains or starts ranks ("num_processes"), and changes no weight.
bool is_setting_of_a_program(const std::string& name);

// Returns what a section that would train in another number format or with other parallelism stands for, and what to do
// instead. Empty: not known.
std::string advice_on_other_section(const std::string& name);

// Advises on a key of this section that holds the number of data-parallel ranks in other programs. Empty: it is none.
std::string advice_on_data_axis(const std::string& section, const std::string& name);

// Advises on a key of this section ("": the top level) that names the number format of the model: "dtype". Empty: it is none.
std::string advice_on_dtype(const std::string& section, const std::string& name);

// Checks whether this is the config.json of a model in Hugging Face's format.
bool describes_model_of_hugging_face(const JsonNode& root);

// Says why this JSON is no config, and what to do: a model's config.json, arguments of Hugging Face's Trainer, a config of
// Accelerate, or a config inside another object. Empty if it may be a config.
std::string why_not_a_config(const JsonNode& root);

// Says the same for a text that is not JSON, such as Accelerate's YAML.
std::string why_not_json(std::string_view text);

}  // namespace trivet::config
