// Independent jobs on a few threads of their own. The first exception ends the others early and is thrown to the caller.
#pragma once

#include <cstddef>
#include <functional>

namespace trivet::checkpoint {

// threads 0: as many as there are cores, at most 8.
void run_jobs(size_t jobs, int threads, const std::function<void(size_t job)>& run);

}  // namespace trivet::checkpoint
