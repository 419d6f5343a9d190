// Records what every rank of a world does, in memory that all ranks see, so that a rank that waits long can say for whom and
// why.
//
// A rank records each operation that it enters (a few words in its own cache line). A waiting rank looks at the ranks that it
// waits for. If one of them has entered nothing for `report_after` and is not waiting itself, a log line names it:
//
//   rank 1 (host a, pid 4711) has not reached all_gather of 64 float32, number 17 of group "data", for 1.5 s; it has entered
//   nothing since barrier, number 3 of group "world": it is computing or stuck; giving up after 600 s
//
// The line is only information, because a long computation looks the same from outside. To keep it rare while all is well:
//   * Only one of the waiting ranks reports, and again after 4, 16, 64 ... times as long.
//   * A rank whose long wait ended well, as in every step of an unbalanced pipeline, waits twice that long before it reports
//     anything during the next 10 minutes.
//   * A rank that is itself waiting for another is named only after 4 times as long, because the other one is the cause.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/operation_header.h"

namespace trivet::comm {

// The activity of a rank: an operation of a group, as it is stored in shared memory.
struct Activity {
  OperationHeader header;
  char group[40] = {};  // cut if longer
};

// The operation that a rank entered last, and how often it has entered one. Its initial state is all zero bytes.
class ActivityRecord {
 public:
  // Writes nothing while another thread of the rank is writing: what that thread records is just as good.
  void write(const Activity& activity);
  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  std::optional<Activity> read() const;  // nullopt: never written, or just being written

 private:
  static constexpr size_t kWords = sizeof(Activity) / sizeof(uint64_t);
  static_assert(sizeof(Activity) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Activity>);
  std::atomic<uint32_t> version_;  // odd while it is written
  std::array<std::atomic<uint64_t>, kWords> words_;
};

// A rank's part of the memory.
struct alignas(64) ActivityLine {
  ActivityRecord entered, waits_in;
  std::atomic<uint32_t> waiting;   // threads of the rank that wait in an operation
  std::atomic<uint32_t> looks;     // increases while one of them really waits: a stuck thread does not look
  std::atomic<uint64_t> reported;  // entered.version() + 1 when somebody named this rank
  char who[128];                   // "host a, pid 4711"
};

class WorldActivity {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    int world_rank = 0, world_size = 1;
    std::string who;  // "a, pid 4711"
    std::chrono::milliseconds report_after{1500};
    std::function<void(const std::string& line)> report;
  };

  static int64_t bytes(int world_size) { return world_size * static_cast<int64_t>(sizeof(ActivityLine)); }
  // `memory` must be zero when the first rank sees it, and lives as long as this object. All ranks of the world must have
  // created their WorldActivity before one of them waits.
  WorldActivity(std::shared_ptr<std::byte> memory, Options options);

  void enter(const Activity& activity) { own().entered.write(activity); }

  // Created by a thread that has begun to wait, and destroyed when the wait is over.
  class Wait {
   public:
    Wait(WorldActivity& world, const Activity& activity, std::chrono::milliseconds deadline);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    // `missing`: world ranks that have not arrived. Reports those that are overdue.
    void look(const std::vector<int>& missing);
    void ended_well();

   private:
    struct Missing {
      uint32_t version;
      Clock::time_point since;  // it has entered nothing since then, as far as this rank has seen
      uint32_t looks;
      Clock::time_point looked;  // when it last looked at the ranks it waits for, as far as this rank has seen
    };
    void observe(int rank, std::optional<Missing>& missing, Clock::time_point now) const;
    bool waits_itself(int rank, const Missing& missing, Clock::time_point now) const;
    void report(int rank, bool waits_itself, Clock::duration waited) const;

    WorldActivity& world_;
    const Activity activity_;
    const std::chrono::milliseconds deadline_;
    const Clock::time_point start_ = Clock::now();
    const Clock::duration patience_;
    Clock::time_point next_look_ = start_;
    std::vector<std::optional<Missing>> missing_;  // by world rank
    std::vector<Clock::duration> next_report_;     // by world rank: the age of the wait at the next report
  };

 private:
  ActivityLine& line(int rank) const { return reinterpret_cast<ActivityLine*>(memory_.get())[rank]; }
  ActivityLine& own() const { return line(options_.world_rank); }
  Clock::duration patience() const;
  void remember(Clock::duration waited);

  const std::shared_ptr<std::byte> memory_;
  const Options options_;
  mutable std::mutex mutex_;
  Clock::duration longest_{0};  // longest wait that ended well
  Clock::time_point longest_at_;
};

}  // namespace trivet::comm
