#include "core/start_threads.h"

namespace trivet {

std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body,
                                       const std::function<void(int)>& give_up) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  } catch (...) {
    give_up(static_cast<int>(threads.size()));
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  return threads;
}

}  // namespace trivet
