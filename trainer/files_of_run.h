// The files that every rank of a run reads by itself.
#pragma once

#include <vector>

#include "comm/world.h"
#include "data/training_data.h"
#include "engine/same_on_all_ranks.h"

namespace trivet {

struct Config;

namespace trainer {

// The files that the config names and this rank has read: training and validation data, tokenizer, schedule, block costs.
std::vector<FileContent> contents_of_files(const Config& config, const data::TrainingData& data);

// Collective. Compares them with those of the other ranks (engine/same_on_all_ranks.h); does nothing with a single rank.
void check_same_files(const Config& config, const data::TrainingData& data, comm::World& world);

}  // namespace trainer
}  // namespace trivet
