// Computes how many tokens the sequences of a step have, with DeepSpeed's curriculum learning by sequence length: longer ones
// step by step, by a formula of the number of the step alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/sample.h"
#include "engine/config/curriculum_config.h"

namespace trivet {

struct Config;

// The difficulty of a step, counted from 1. It never falls from one step to the next.
//
//   fixed_linear, fixed_root   x = floor((t / total)^(1 / degree) (max - min) + min), down to a multiple of difficulty_step,
//                              and at most max; linear has the degree 1
//   fixed_discrete             the first difficulty whose last step is not before t
int64_t difficulty_at(const CurriculumConfig& curriculum, int64_t step);

// Returns, for each difficulty in turn, the first step that has it. The last one has the longest sequences.
std::vector<int64_t> steps_of_new_difficulty(const CurriculumConfig& curriculum);

// The samples of a step, counted from 0: the model's, cut to the difficulty of the step if there is a curriculum.
SampleSpec sample_of_step(const CurriculumConfig& curriculum, const SampleSpec& sample, int64_t step);
// Returns the shapes of the samples of the longest step.
SampleSpec longest_sample(const CurriculumConfig& curriculum, const SampleSpec& sample);

// Makes all steps the longest, for steps that are only timed.
void use_longest_samples(CurriculumConfig& curriculum);

namespace config {

// Checks curriculum_learning; `longest` is model.sequence_length, or 0 if the model reads no sequences of tokens.
void check_curriculum(const Config& config, int64_t longest);

// Checks the difficulties of a schedule whose keys are in `section`; see check_curriculum for those of curriculum_learning.
void check_difficulties(const Config& config, const CurriculumConfig& curriculum, const std::string& section);

// Writes the values as JSON.
std::string integers_json(const std::vector<int64_t>& values);

}  // namespace config
}  // namespace trivet
