// A process in which the system soon refuses further threads, as at a limit of them. That limit does not bind root, so here it
// is the address space, which every stack takes a part of: pthread_create fails with the same error.
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

// After a few more, of stacks of 2 MiB or more. There is no way back: for a process of its own (EXPECT_EXIT).
inline void refuse_threads_soon() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + (uint64_t{64} << 20), RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace trivet::test
