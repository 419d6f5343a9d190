#include "comm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace trivet::comm {
namespace {

constexpr int kSpins = 200;  // measured: catches a peer that is about to arrive, and costs nothing otherwise

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Not FUTEX_PRIVATE: the word may be shared between processes.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* time) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, time, nullptr, 0);
}

}  // namespace

void SharedCounter::advance() {
  value.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex(value, FUTEX_WAKE, INT_MAX, nullptr);
}

bool SharedCounter::wait(uint32_t target, std::chrono::milliseconds slice) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (reached(target)) return true;
    pause_briefly();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = value.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - target) < 0) {
    const timespec time{slice.count() / 1000, (slice.count() % 1000) * 1000000};
    futex(value, FUTEX_WAIT, seen, &time);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return reached(target);
}

}  // namespace trivet::comm
