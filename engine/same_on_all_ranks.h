// Checks that files which every rank reads by itself have the same contents on all ranks. Equal configs only mean equal file
// names: on another host, or in another directory, the same name may be a different file, and nothing later would notice.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"

namespace trivet {

struct FileContent {
  std::string key;   // config key
  std::string path;  // as the config names it
  std::string digest;
};

// Collective. Throws CommError RanksDisagree on all ranks, naming the first file that differs, two ranks and both digests.
void check_same_on_all_ranks(const std::vector<FileContent>& files, comm::World& world);

}  // namespace trivet
