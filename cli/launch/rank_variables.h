// Names the variables that the launcher gives to each rank itself. Nobody else can choose their values, so a file of variables
// for the ranks may not set them (hosts/exported_environment.h).
//
// Not among them: those for which the launcher only has a default, or a part of the user's value (OMP_NUM_THREADS,
// OMP_WAIT_POLICY, CUDA_VISIBLE_DEVICES).
#pragma once

#include <array>
#include <string_view>

#include "core/named_files.h"

namespace trivet::cli {

inline constexpr std::array<std::string_view, 20> kRankVariables{
    // rank_layout.cpp
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "CROSS_RANK", "CROSS_SIZE",
    "MASTER_ADDR", "MASTER_PORT",
    // rank_starter.cpp
    "TRIVET_JOB_ID", "TRIVET_EPOCH", "TRIVET_LAUNCH_ID", "TRIVET_HOST_TIMEOUT", "TRIVET_GUARDIAN_PID", "TRIVET_LAUNCHER_FD",
    "TRIVET_LISTEN_FD", "TRIVET_SECRET_FD",
    // the files that no output of a rank may replace
    kLauncherInputs, kLauncherOutputs};

}  // namespace trivet::cli
