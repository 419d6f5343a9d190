// Lets ranks wait for each other: they spin briefly, then sleep in the kernel. They never call sched_yield, which gives the
// core to a busy neighbour for a full time slice, and never only spin, which stalls when there are more ranks than cores. This
// works between threads and between processes that map the same memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trivet::comm {

// A counter that one rank advances and others wait for. It wraps around; only differences matter.
struct alignas(64) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // Everything written before this call is visible to a rank that sees the new value.
  void advance();
  bool reached(uint32_t target) const { return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0; }
  // True when the target is reached; false after a brief spin and a sleep of at most `slice` (the caller then checks for
  // failures).
  bool wait(uint32_t target, std::chrono::milliseconds slice);
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace trivet::comm
