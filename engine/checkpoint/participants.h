// The ranks that write or open one checkpoint together, and how they meet.
//
// gather() is the only thing they do together: everybody's text in rank order. All ranks call it equally often; it throws
// (CommError) when a rank is lost. An asynchronous save meets on its own thread and so needs a group of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace trivet::checkpoint {

struct Participants {
  int rank = 0, size = 1;
  std::function<std::vector<std::string>(const std::string& mine)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// The group must outlive what is returned, and nobody else may use it meanwhile.
Participants over_group(comm::ProcessGroup& group);

// Runs `work` on every rank, then meets. Where it threw CheckpointError or FileError on some rank, all ranks throw a
// CheckpointError with the first of these texts (that of the lowest rank). Where it threw NumericsError on some rank, all throw
// that instead: it cannot be forgiven as a failed write can. Returns what each rank's work returned.
std::vector<std::string> together(const Participants& ranks, const std::function<std::string()>& work);

}  // namespace trivet::checkpoint
