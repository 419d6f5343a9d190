// Restores a run from a checkpoint of an earlier one, as --resume asks.
#pragma once

#include <string>

#include "trainer/checkpoints.h"
#include "trainer/run.h"

namespace trivet::trainer {

// Collective. Returns the directory of the step that the run continues from, or an empty text if it starts at step 1. Without
// --resume, and when it names one step or another directory, checkpoint.directory must hold no steps of an earlier run: a later
// --resume could pick those up. Resuming from a directory that this run does not save to only reads it, which needs no lock.
std::string resume_if_asked(Run& run, Checkpoints& checkpoints);

// Throws ConfigError that says why no run can be resumed from it. `key` has named it.
[[noreturn]] void refuse_to_resume_from(const std::string& directory, const std::string& key = "--resume");

// Throws ConfigError if the step is an imported model or that of a trainer that embeds Trivet, which no run continues. `key`
// has named it.
void refuse_imported(const checkpoint::LoadedStep& step, const std::string& key);

// "scheduler.type is "WarmupLR", and was "Cosine"; ...": keys that change the numbers of a run and differ from those of the run
// that saved the step. `data`: also those of model and data, which a resumed run must have as they were.
std::string changed_keys(const Config& config, const checkpoint::LoadedStep& step, bool data);

// Collective. Continues from this step, after checking that it was trained on the same data with the same tokenizer.
void continue_from(Run& run, const checkpoint::LoadedStep& step);

}  // namespace trivet::trainer
