#include <pthread.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "comm/board.h"
#include "comm/host_name.h"
#include "comm/shared_group.h"
#include "comm/threads/thread_memory.h"
#include "comm/world.h"
#include "core/start_threads.h"

namespace trivet::comm {
namespace {

// What all ranks of one run_threads call share.
struct Job {
  explicit Job(int ranks) : ended(ranks) {}

  std::shared_ptr<JobState> state = std::make_shared<JobState>();
  std::shared_ptr<ThreadMemory> memory = std::make_shared<ThreadMemory>();
  std::vector<std::atomic<bool>> ended;

  std::mutex mutex;
  std::exception_ptr first_failure;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(RankInGroup self, JobView view, std::shared_ptr<std::byte> board, Job& job)
      : job_(job), host_(self.host), group_(std::move(self), std::move(view), std::move(board), job.memory) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_.state->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  Job& job_;
  std::string host_;
  mutable SharedGroup group_;
};

// Keeps the first failure for the caller before the other ranks learn of it, so that none of its consequences is kept instead.
void report_failure(Job& job, World& world, const std::string& what) {
  {
    std::lock_guard lock(job.mutex);
    if (!job.first_failure) job.first_failure = std::current_exception();
  }
  world.abort(what);
}

void run_rank(Job& job, World& world, const std::function<void(World&)>& body) {
  try {
    body(world);
  } catch (const std::exception& error) {
    report_failure(job, world, error.what());
  } catch (...) {
    report_failure(job, world, "an exception that is not a std::exception");
  }
  job.ended[static_cast<size_t>(world.rank())] = true;
}

}  // namespace

void run_threads(int ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  if (ranks < 1) throw ConfigError("--ranks: " + std::to_string(ranks) + " is not accepted; start at least 1 rank");
  Job job(ranks);
  const auto board = allocate_board(Board::bytes(ranks, job.memory->slot_bytes()));
  const auto activity = allocate_board(WorldActivity::bytes(ranks));
  const std::string host = host_name();
  std::vector<JobView> views(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)  // all of them before the first rank starts
    views[rank] = {.deadline = options.operation_deadline,
                   .state = job.state,
                   .activity = std::make_shared<WorldActivity>(activity, activity_options(rank, ranks, host, options)),
                   .has_ended = [&job](int r) { return job.ended[static_cast<size_t>(r)].load(); }};

  const auto run = [&](int rank) {
    pthread_setname_np(pthread_self(), ("rank " + std::to_string(rank)).c_str());
    RankInGroup self{.group = "world", .rank = rank, .host = host};
    for (int r = 0; r < ranks; ++r) self.world_ranks.push_back(r);
    ThreadWorld world(std::move(self), views[rank], board, job);
    run_rank(job, world, body);
  };
  const auto give_up = [&](int rank) {
    job.state->accuse({rank, host, ExitCode::OutOfMemory, "its thread cannot be started"});
  };
  for (auto& thread : start_threads(ranks, run, give_up)) thread.join();
  if (job.first_failure) std::rethrow_exception(job.first_failure);
}

}  // namespace trivet::comm
