// The ranks that write or open a checkpoint together, and how they communicate.
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

namespace trivet::checkpoint {

struct Participants {
  int rank = 0, size = 1;
  std::function<std::vector<std::string>(const std::string& mine)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// The group must outlive the result, and nobody else may use it meanwhile.
Participants over_group(comm::ProcessGroup& group);

// Runs `work` on every rank, then gathers the outcomes, and returns what each rank's work returned. If it threw CheckpointError
// or FileError on some rank, all ranks throw a CheckpointError with the text from the lowest of these ranks. If it threw
// NumericsError on some rank, all ranks throw that instead, because it cannot be forgiven as a failed write can.
std::vector<std::string> together(const Participants& ranks, const std::function<std::string()>& work);

}  // namespace trivet::checkpoint
