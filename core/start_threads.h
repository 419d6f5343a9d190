// Starts several threads, or none: where the system refuses one (ulimit -u, pids.max, memory), those before it end first.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace trivet {

// Thread i runs body(i). If thread i cannot be started, `give_up(i)` must make those that run already return from `body`. They
// are waited for, and the error is thrown (std::system_error, std::bad_alloc): main() makes exit code 19 of it.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body,
                                       const std::function<void(int)>& give_up);

}  // namespace trivet
