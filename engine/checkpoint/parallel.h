// Runs independent jobs on a few threads of their own. The first exception stops the remaining jobs and is rethrown.
#pragma once

#include <cstddef>
#include <functional>

namespace trivet::checkpoint {

// `threads`: 0 means as many as there are cores, but at most 8.
void run_jobs(size_t jobs, int threads, const std::function<void(size_t job)>& run);

}  // namespace trivet::checkpoint
