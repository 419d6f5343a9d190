// --init-from: a run that begins with the weights of another model instead of random ones.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/loaded_step.h"
#include "trainer/run.h"
#include "trainer/saved_model.h"

namespace trivet::trainer {

// The keys of the section "model" that these weights belong to, as defaults for load_config: "model.layers=12". `path`: a
// folder in Hugging Face's format, a directory of checkpoints or one of its steps. `key`: what names it, for errors.
std::vector<std::string> model_keys_of(const std::string& path, const std::string& key, Weights weights = Weights::Needed);
// Those of the model that a run continues. Throws ConfigError also if the checkpoint is that of an imported model.
std::vector<std::string> model_keys_of_run(const std::string& directory, const std::string& key);

// Checks that the section "model" describes the model of these weights, as far as that is known before the data is read. If
// model.vocabulary is the number of their rows, as model_keys_of states it, and the data are texts, it becomes the tokenizer in
// the folder of the weights, or in the checkpoint. Throws ConfigError if there is none, or if something contradicts the
// weights.
void settle_with_weights(const std::string& path, Config& config, Weights weights = Weights::Needed);

// If the data have conversations, and the config names no chat template, takes that of the model's folder, or of the run of a
// checkpoint. None stays if the folder's is not one of ours.
void take_chat_template(const SavedModel& initial, Config& config);

// Returns the weights that the run begins with: options.init_from, or model.from of the config; empty: random weights.
const std::string& initial_weights_of(const Config& config, const TrainOptions& options);

// Throws ConfigError if the weights at `path` are of another model than `ours`, the model of `config`.
void check_initial_weights(const std::string& path, const Config& config, const model::Description& ours);

// Each rank reads its own parts. Returns what was read, in words; empty: the weights are random. Throws ConfigError if the
// weights are those of another model, CommError if ranks found different ones. Collective.
std::string load_initial_weights_if_asked(Run& run);

// Computes log-probabilities of pairs of answers with the weights that the run begins with (pair_references.h).
// Describes what was computed; empty if there was nothing to compute, or a checkpoint had it. Collective.
std::string compute_references_if_needed(Run& run);
// Takes them from the checkpoint when a run resumes. Throws ConfigError if the run is given other weights to begin with
// than those that the run began with.
void restore_references(Run& run, const checkpoint::LoadedStep& step);

}  // namespace trivet::trainer
