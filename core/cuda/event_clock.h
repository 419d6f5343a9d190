// A clock (core/stream_clock.h) that records events on the streams of one GPU, so that work on the device is timed where it
// runs. The host waits only in milliseconds() and for the first moment after forget(), which relates the device's time to the
// host's.
#pragma once

#include "core/cuda/streams.h"
#include "core/stream_clock.h"

namespace trivet::cuda {

// Call it on the thread of `streams`, which must outlive the clock. The clock has one event for each moment since forget(), and
// reuses the events.
std::unique_ptr<StreamClock> make_event_clock(const Streams& streams);

}  // namespace trivet::cuda
