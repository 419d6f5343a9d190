#include "core/clock.h"

#include <ctime>
#include <thread>

namespace trivet {
namespace {

class SystemClock final : public Clock {
 public:
  std::chrono::nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  int64_t unix_seconds() const override { return std::time(nullptr); }
  void sleep(std::chrono::nanoseconds duration) const override { std::this_thread::sleep_for(duration); }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace trivet
