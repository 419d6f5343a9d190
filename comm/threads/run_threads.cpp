#include <algorithm>

#include "comm/board.h"
#include "comm/shared_group.h"
#include "comm/threads/rank_threads.h"
#include "comm/threads/thread_memory.h"
#include "comm/world.h"

namespace trivet::comm {
namespace {

class ThreadWorld final : public World {
 public:
  ThreadWorld(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<ThreadMemory> memory)
      : job_(job.state), host_(self.host), group_(std::move(self), std::move(job), std::move(board), std::move(memory)) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  std::shared_ptr<JobState> job_;
  std::string host_;
  mutable SharedGroup group_;
};

}  // namespace

void run_threads(int ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  const auto memory = std::make_shared<ThreadMemory>();
  const auto board = allocate_board(Board::bytes(std::max(ranks, 1), memory->slot_bytes()));
  const auto make = [&](RankInGroup self, JobView job) {
    return std::make_unique<ThreadWorld>(std::move(self), std::move(job), board, memory);
  };
  run_rank_threads(ranks, make, body, options);
}

}  // namespace trivet::comm
