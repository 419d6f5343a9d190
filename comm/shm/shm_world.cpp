#include "comm/shm/shm_world.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "comm/shared_group.h"
#include "comm/shm/segment.h"
#include "comm/shm/shm_ground.h"

namespace trivet::comm {
namespace {

class ShmWorld final : public World {
 public:
  ShmWorld(Seat seat, std::shared_ptr<std::byte> board, std::shared_ptr<ShmGround> ground)
      : job_(seat.job), host_(seat.host), ground_(ground), group_(std::move(seat), std::move(board), std::move(ground)) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  Allocator& allocator() override { return ground_->heap() ? *ground_->heap() : host_allocator(); }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  std::shared_ptr<JobState> job_;
  std::string host_;
  std::shared_ptr<ShmGround> ground_;
  mutable SharedGroup group_;
};

// Behind the world's board: where the heap is, and who has found it.
struct HeapNotice {
  char path[64];
  std::atomic<int> mapped;
};

struct Common {
  std::shared_ptr<std::byte> board;
  std::unique_ptr<ShmHeap> heap;  // of all ranks, or of none
};

Common create(const ShmPlace& place, int64_t board_bytes) {
  Common common{create_segment(place.segment_name, board_bytes + static_cast<int64_t>(sizeof(HeapNotice))),
                ShmHeap::create(place.size)};
  const SegmentName unlinked_at_the_end(place.segment_name);
  auto* notice = reinterpret_cast<HeapNotice*>(common.board.get() + board_bytes);
  if (common.heap) {
    common.heap->path().copy(notice->path, sizeof notice->path - 1);
    ++notice->mapped;
  }
  place.barrier();
  place.barrier();
  return common;
}

Common attach(const ShmPlace& place, int64_t board_bytes) {
  place.barrier();
  Common common{attach_segment(place.segment_name, board_bytes + static_cast<int64_t>(sizeof(HeapNotice))), nullptr};
  auto* notice = reinterpret_cast<HeapNotice*>(common.board.get() + board_bytes);
  if (notice->path[0]) common.heap = ShmHeap::attach(notice->path, place.rank, place.size);
  if (common.heap) ++notice->mapped;
  place.barrier();
  return common;
}

// All ranks map the same memory, and the board has no name any more when this returns.
Common meet(const ShmPlace& place, int64_t board_bytes) {
  Common common = place.rank == 0 ? create(place, board_bytes) : attach(place, board_bytes);
  if (reinterpret_cast<HeapNotice*>(common.board.get() + board_bytes)->mapped != place.size) common.heap.reset();
  return common;
}

}  // namespace

std::unique_ptr<World> make_shm_world(const ShmPlace& place, const WorldOptions& options, std::shared_ptr<JobState> job) {
  Seat seat;
  seat.group = "world";
  seat.rank = place.rank;
  seat.host = place.host;
  seat.deadline = options.operation_deadline;
  seat.job = std::move(job);
  for (int rank = 0; rank < place.size; ++rank) seat.world_ranks.push_back(rank);

  Common common = meet(place, Board::bytes(place.size, ShmGround::kSlotBytes));
  auto ground = std::make_shared<ShmGround>(place.segment_name, std::move(common.heap));
  return std::make_unique<ShmWorld>(std::move(seat), std::move(common.board), std::move(ground));
}

}  // namespace trivet::comm
