#include "comm/shm/shm_world.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "comm/activity_options.h"
#include "comm/shared_group.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_memory.h"

namespace trivet::comm {
namespace {

class ShmWorld final : public World {
 public:
  ShmWorld(RankInGroup self, JobView job, std::shared_ptr<std::byte> board, std::shared_ptr<ShmMemory> memory)
      : job_(job.state),
        host_(self.host),
        memory_(memory),
        group_(std::move(self), std::move(job), std::move(board), std::move(memory)) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  Allocator& allocator() override { return memory_->heap() ? *memory_->heap() : host_allocator(); }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  std::shared_ptr<JobState> job_;
  std::string host_;
  std::shared_ptr<ShmMemory> memory_;
  mutable SharedGroup group_;
};

// Stored after the world's board: where the heap is, and how many ranks have mapped it.
struct alignas(64) HeapNotice {
  char path[64];
  std::atomic<int> mapped;
};

// Where the parts of the world's segment begin: the board, the notice, and what every rank does.
struct SegmentLayout {
  explicit SegmentLayout(int ranks)
      : board(Board::bytes(ranks, ShmMemory::kSlotBytes)),
        activity(board + static_cast<int64_t>(sizeof(HeapNotice))),
        all(activity + WorldActivity::bytes(ranks)) {}
  int64_t board, activity, all;
};

struct Common {
  std::shared_ptr<std::byte> segment;
  SegmentLayout layout;
  std::unique_ptr<ShmHeap> heap = {};  // on all ranks or on none
  std::shared_ptr<WorldActivity> activity = {};

  HeapNotice& notice() const { return *reinterpret_cast<HeapNotice*>(segment.get() + layout.board); }
  void make_activity(WorldActivity::Options options) {
    activity = std::make_shared<WorldActivity>(std::shared_ptr<std::byte>(segment, segment.get() + layout.activity),
                                               std::move(options));
  }
};

Common create(const ShmPlace& place, const WorldActivity::Options& options) {
  const SegmentLayout layout(place.size);
  Common common{create_segment(place.segment_name, layout.all), layout};
  const SegmentName unlinked_at_the_end(place.segment_name);
  common.heap = ShmHeap::create(place.size);
  if (common.heap) {
    common.heap->path().copy(common.notice().path, sizeof common.notice().path - 1);
    ++common.notice().mapped;
  }
  place.barrier();
  common.make_activity(options);
  place.barrier();
  return common;
}

Common attach(const ShmPlace& place, const WorldActivity::Options& options) {
  place.barrier();
  const SegmentLayout layout(place.size);
  Common common{attach_segment(place.segment_name, layout.all), layout};
  if (common.notice().path[0]) common.heap = ShmHeap::attach(common.notice().path, place.rank, place.size);
  if (common.heap) ++common.notice().mapped;
  common.make_activity(options);
  place.barrier();
  return common;
}

// When this returns, all ranks have mapped the same memory, and the segment no longer has a name.
Common meet(const ShmPlace& place, const WorldActivity::Options& options) {
  Common common = place.rank == 0 ? create(place, options) : attach(place, options);
  if (common.notice().mapped != place.size) common.heap.reset();
  return common;
}

}  // namespace

std::unique_ptr<World> make_shm_world(const ShmPlace& place, const WorldOptions& options, std::shared_ptr<JobState> job) {
  RankInGroup self{.group = "world", .rank = place.rank, .host = place.host};
  for (int rank = 0; rank < place.size; ++rank) self.world_ranks.push_back(rank);

  Common common = meet(place, activity_options(place.rank, place.size, place.host, options));
  JobView view{.deadline = options.operation_deadline, .state = std::move(job), .activity = common.activity};
  auto memory = std::make_shared<ShmMemory>(place.segment_name, std::move(common.heap));
  return std::make_unique<ShmWorld>(std::move(self), std::move(view), std::move(common.segment), std::move(memory));
}

}  // namespace trivet::comm
