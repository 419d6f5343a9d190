// Ranks that tell one another texts, such as the names and digests of what each of them holds.
//
// gather() is their only collective operation: it returns the texts of all ranks in rank order. All ranks must call it the same
// number of times; it throws CommError when a rank is lost. An asynchronous save calls it on its own thread and therefore needs
// its own group.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace trivet::comm {

struct Participants {
  int rank = 0, size = 1;
  std::function<std::vector<std::string>(const std::string& mine)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// The group must outlive the result, and nobody else may use it meanwhile.
Participants over_group(ProcessGroup& group);

}  // namespace trivet::comm
