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

// Stored after the world's board: where the heap is, and how many ranks have mapped it.
struct alignas(64) HeapNotice {
  char path[64];
  std::atomic<int> mapped;
};

// Layout of the world's segment: the board, the notice, and where every rank is.
struct Layout {
  explicit Layout(int ranks)
      : board(Board::bytes(ranks, ShmGround::kSlotBytes)),
        whereabouts(board + static_cast<int64_t>(sizeof(HeapNotice))),
        all(whereabouts + Whereabouts::bytes(ranks)) {}
  int64_t board, whereabouts, all;
};

struct Common {
  std::shared_ptr<std::byte> segment;
  Layout layout;
  std::unique_ptr<ShmHeap> heap = {};  // on all ranks or on none
  std::shared_ptr<Whereabouts> whereabouts = {};

  HeapNotice& notice() const { return *reinterpret_cast<HeapNotice*>(segment.get() + layout.board); }
  void make_whereabouts(Whereabouts::Options options) {
    whereabouts = std::make_shared<Whereabouts>(std::shared_ptr<std::byte>(segment, segment.get() + layout.whereabouts),
                                                std::move(options));
  }
};

Common create(const ShmPlace& place, const Whereabouts::Options& options) {
  const Layout layout(place.size);
  Common common{create_segment(place.segment_name, layout.all), layout};
  const SegmentName unlinked_at_the_end(place.segment_name);
  common.heap = ShmHeap::create(place.size);
  if (common.heap) {
    common.heap->path().copy(common.notice().path, sizeof common.notice().path - 1);
    ++common.notice().mapped;
  }
  place.barrier();
  common.make_whereabouts(options);
  place.barrier();
  return common;
}

Common attach(const ShmPlace& place, const Whereabouts::Options& options) {
  place.barrier();
  const Layout layout(place.size);
  Common common{attach_segment(place.segment_name, layout.all), layout};
  if (common.notice().path[0]) common.heap = ShmHeap::attach(common.notice().path, place.rank, place.size);
  if (common.heap) ++common.notice().mapped;
  common.make_whereabouts(options);
  place.barrier();
  return common;
}

// When this returns, all ranks have mapped the same memory, and the segment no longer has a name.
Common meet(const ShmPlace& place, const Whereabouts::Options& options) {
  Common common = place.rank == 0 ? create(place, options) : attach(place, options);
  if (common.notice().mapped != place.size) common.heap.reset();
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

  Common common = meet(place, whereabouts_options(place.rank, place.size, place.host, options));
  seat.whereabouts = common.whereabouts;
  auto ground = std::make_shared<ShmGround>(place.segment_name, std::move(common.heap));
  return std::make_unique<ShmWorld>(std::move(seat), std::move(common.segment), std::move(ground));
}

}  // namespace trivet::comm
