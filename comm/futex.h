// How ranks wait for each other: a brief spin, then the kernel. Never sched_yield (it gives the core to a busy neighbour for a
// whole slice) and never spinning alone (it dies when there are more ranks than cores). Works between threads and between
// processes that map the same memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trivet::comm {

// A counter that one rank advances and others wait for. Wraps; differences are what counts.
struct alignas(64) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Everything written before is visible to who sees the new value.
  void advance();
  bool reached(uint32_t target) const { return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0; }
  // True when the target is reached; false after a brief spin and a sleep of at most `slice` (the caller then looks for bad
  // news).
  bool wait(uint32_t target, std::chrono::milliseconds slice);
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace trivet::comm
