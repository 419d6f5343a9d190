// A clock of events on the streams of one GPU (core/stream_clock.h): what runs on the device is timed where it runs, and nobody
// waits but for the first moment after forget(), which tells how the device's time and the host's go together, and in
// milliseconds().
#pragma once

#include "core/cuda/streams.h"
#include "core/stream_clock.h"

namespace trivet::cuda {

// On the thread of `streams`, which must outlive it. An event for each moment since forget(); they are used again.
std::unique_ptr<StreamClock> make_event_clock(const Streams& streams);

}  // namespace trivet::cuda
