// Makes the system refuse further threads to this process, as it does at the limit on their number. That limit does not bind
// root, so the address space is limited instead: each thread's stack takes a part of it, and pthread_create fails with the same
// error.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace trivet::test {

// Sanitizers need more address space than a limit would leave.
constexpr bool threads_can_be_refused() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

// Leaves room for a few more threads, whose stacks take 2 MiB or more each. This cannot be undone, so call it in a process that
// is about to end (EXPECT_EXIT).
inline void refuse_threads_soon() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + (uint64_t{64} << 20), RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace trivet::test
