// Files that every rank reads for itself must hold the same on all of them. Equal configs only say that they have the same
// names: on another host, or in another directory, a name may be another file, and nothing later would notice.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "engine/config/config.h"
#include "engine/data/dataset.h"

namespace trivet {

struct FileContent {
  std::string key;   // of the config
  std::string path;  // as the config names it
  std::string digest;
};

// What the config names and this rank has read: training and validation data, tokenizer, schedule, costs of blocks.
std::vector<FileContent> contents_of_files(const Config& config, const data::Dataset& dataset);

// Collective. Throws CommError RanksDisagree on all ranks, naming the first file that differs, two ranks and both digests.
void check_same_on_all_ranks(const std::vector<FileContent>& files, comm::World& world);

// Both; nothing with a single rank.
void check_same_files(const Config& config, const data::Dataset& dataset, comm::World& world);

}  // namespace trivet
