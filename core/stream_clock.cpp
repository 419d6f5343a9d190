#include "core/stream_clock.h"

#include <algorithm>

#include "core/clock.h"

namespace trivet {
namespace {

// A moment is a time in nanoseconds.
class HostClock final : public StreamClock {
 public:
  Moment now() override { return system_clock().now().count(); }
  // The time that the stream's thread takes to wake up counts as part of the work.
  Moment turn(Moment queued, Moment free) override { return std::max(queued, free); }
  double milliseconds(Moment moment) override { return static_cast<double>(moment) * 1e-6; }
};

}  // namespace

std::unique_ptr<StreamClock> make_host_clock() { return std::make_unique<HostClock>(); }

}  // namespace trivet
