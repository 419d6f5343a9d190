// Starts several threads or none: if the system refuses one (ulimit -u, pids.max, memory), those already started end first.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace trivet {

// Thread i runs body(i). If thread i cannot be started, `give_up(i)` must make the threads that already run return from `body`.
// They are joined, and the error is thrown (std::system_error, std::bad_alloc); main() turns it into exit code 19.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body,
                                       const std::function<void(int)>& give_up);

}  // namespace trivet
