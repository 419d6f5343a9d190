// Reads Horovod's environment variables. Ranks that differ in fusion_threshold_bytes, cache_capacity or process_sets
// are refused when they start; other fields may differ.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace trivet::hvd {

struct Options {
  // HOROVOD_FUSION_THRESHOLD, in bytes: small tensors are summed together, up to this size. 0: each by itself.
  int64_t fusion_threshold_bytes = int64_t{128} << 20;
  // HOROVOD_CYCLE_TIME, in milliseconds: the least time from the start of one negotiation to the start of the next.
  std::chrono::microseconds cycle_time{1000};
  // A rank that has submitted nothing takes part in a negotiation at least this often.
  std::chrono::milliseconds idle_time{100};
  // HOROVOD_CACHE_CAPACITY: tensors that ranks remember, so that only a number is sent for each of them the next time.
  int cache_capacity = 1024;
  // HOROVOD_STALL_CHECK_TIME_SECONDS: warn about tensors that some ranks have not submitted for so long. 0, or
  // HOROVOD_STALL_CHECK_DISABLE=1: never.
  std::chrono::milliseconds stall_check_time{60000};
  // HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: when a tensor has waited so long for a rank, all tensors of the process set that wait
  // for ranks fail on the ranks that have submitted them. 0: never.
  std::chrono::milliseconds stall_shutdown_time{0};
  // Gets the warnings, on a background thread of the first rank of the process set. Empty: they go to stderr.
  std::function<void(const std::string& line)> on_stall;
  // HOROVOD_TIMELINE: rank 0 writes its view of all operations into this file (timeline.h). Empty, or the variable is
  // "DYNAMIC": none until start_timeline().
  std::string timeline;
  // Process sets that exist from the start, each by its world ranks (ascending). More can be added later.
  std::vector<std::vector<int>> process_sets;
  // Further variables of the environment whose names begin with HOROVOD_: rank 0 warns that they have no effect.
  std::vector<std::string> unused_variables;
};

// Throws ConfigError, naming the variable, if a value is not a number or out of range, or if it turns on what is not here:
// HOROVOD_AUTOTUNE, HOROVOD_ELASTIC.
Options options_from_environment(const comm::Environment& environment = comm::current_environment());

// Throws ConfigError if one of Horovod's launchers (horovodrun, Spark, Ray) has started more or fewer ranks, as it says in
// HOROVOD_SIZE, than this process has found: each rank would train alone.
void check_launcher(const comm::Environment& environment, int world_size);

}  // namespace trivet::hvd
