#include "comm/threads/rank_threads.h"

#include <pthread.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "comm/activity_options.h"
#include "comm/host_name.h"
#include "comm/threads/thread_memory.h"
#include "core/start_threads.h"

namespace trivet::comm {
namespace {

// State that all ranks of one call share.
struct Job {
  explicit Job(int ranks) : ended(ranks) {}

  std::shared_ptr<JobState> state = std::make_shared<JobState>();
  std::vector<std::atomic<bool>> ended;

  std::mutex mutex;
  std::exception_ptr first_failure;
};

// Keeps the first failure for the caller before the other ranks learn of it, so that none of its consequences is kept instead.
void report_failure(Job& job, const RankInGroup& self, const std::string& what) {
  {
    std::lock_guard lock(job.mutex);
    if (!job.first_failure) job.first_failure = std::current_exception();
  }
  job.state->accuse({self.rank, self.host, ExitCode::PeerLost, "abort: " + what});
}

void run_rank(Job& job, const RankInGroup& self, const RankWorldMaker& make, const JobView& view,
              const std::function<void(World&)>& body) {
  std::unique_ptr<World> world;  // outlives the body's failure: the others learn of that first
  try {
    world = make(self, view);
    body(*world);
  } catch (const std::exception& error) {
    report_failure(job, self, error.what());
  } catch (...) {
    report_failure(job, self, "an exception that is not a std::exception");
  }
  job.ended[self.rank] = true;
}

}  // namespace

void run_rank_threads(int ranks, const RankWorldMaker& make, const std::function<void(World&)>& body,
                      const WorldOptions& options) {
  if (ranks < 1) throw ConfigError("--ranks: " + std::to_string(ranks) + " is not accepted; start at least 1 rank");
  Job job(ranks);
  const auto activity = allocate_board(WorldActivity::bytes(ranks));
  const std::string host = host_name();
  std::vector<JobView> views(ranks);
  for (int rank = 0; rank < ranks; ++rank)  // all of them before the first rank starts
    views[rank] = {.deadline = options.operation_deadline,
                   .state = job.state,
                   .activity = std::make_shared<WorldActivity>(activity, activity_options(rank, ranks, host, options)),
                   .has_ended = [&job](int r) { return job.ended[r].load(); }};

  const auto run = [&](int rank) {
    pthread_setname_np(pthread_self(), ("rank " + std::to_string(rank)).c_str());
    RankInGroup self{.group = "world", .rank = rank, .host = host};
    for (int r = 0; r < ranks; ++r) self.world_ranks.push_back(r);
    run_rank(job, self, make, views[rank], body);
  };
  const auto give_up = [&](int rank) {
    job.state->accuse({rank, host, ExitCode::OutOfMemory, "its thread cannot be started"});
  };
  for (auto& thread : start_threads(ranks, run, give_up)) thread.join();
  if (job.first_failure) std::rethrow_exception(job.first_failure);
}

}  // namespace trivet::comm
