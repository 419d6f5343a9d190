#include "engine/checkpoint/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace trivet::checkpoint {

void run_jobs(size_t jobs, int threads, const std::function<void(size_t job)>& run) {
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::min(std::thread::hardware_concurrency(), 8u);
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t job = next++; job < jobs; job = next++) {
      try {
        run(job);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
        next = jobs;
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min(wanted, jobs); ++i) helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trivet::checkpoint
