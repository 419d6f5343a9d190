// Checks that files which every rank reads by itself have the same contents on all ranks. Equal configs only mean equal file
// names: on another host, or in another directory, the same name may be a different file, and nothing later would notice.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "data/training_data.h"

namespace trivet {

struct Config;

struct FileContent {
  std::string key;   // config key
  std::string path;  // as the config names it
  std::string digest;
};

// The files that the config names and this rank has read: training and validation data, tokenizer, schedule, block costs.
std::vector<FileContent> contents_of_files(const Config& config, const data::TrainingData& data);

// Collective. Throws CommError RanksDisagree on all ranks, naming the first file that differs, two ranks and both digests.
void check_same_on_all_ranks(const std::vector<FileContent>& files, comm::World& world);

// Does both; does nothing with a single rank.
void check_same_files(const Config& config, const data::TrainingData& data, comm::World& world);

}  // namespace trivet
