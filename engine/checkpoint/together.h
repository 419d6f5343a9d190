// Work that all ranks do or none: if it fails on one of them, all of them throw.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/participants.h"
#include "core/error.h"

namespace trivet::checkpoint {

using comm::Participants;

// The error that a rank throws if its own work failed; the other ranks throw a CheckpointError with the same text.
class FailedHere final : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

// Runs `work` on every rank, then gathers the outcomes, and returns what each rank's work returned. If it threw CheckpointError
// or FileError on some rank, all ranks throw a CheckpointError with the text from the lowest of these ranks. If it threw
// NumericsError on some rank, all ranks throw that instead, because it cannot be forgiven as a failed write can.
std::vector<std::string> together(const Participants& ranks, const std::function<std::string()>& work);

}  // namespace trivet::checkpoint
