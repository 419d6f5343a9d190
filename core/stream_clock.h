// Measures when work on streams runs. A moment is a ticket: on a device, it happens after the call that returned it, when the
// stream gets there, so its time in milliseconds is read afterwards.
//
// There is one clock per rank. now() and turn() are called on the thread that runs the program; those of a host clock may be
// called on any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace trivet {

class StreamClock {
 public:
  using Moment = int64_t;
  virtual ~StreamClock() = default;
  // Returns the caller's progress: on a device, the moment when its current stream has done all work enqueued so far.
  virtual Moment now() = 0;
  // The moment when work that begins now got its turn, on a stream that was free at `free` and received the work at `queued`.
  virtual Moment turn(Moment queued, Moment free) = 0;
  // The time of a moment on CLOCK_MONOTONIC, which all processes of a host share. Waits until the moment has happened.
  virtual double milliseconds(Moment moment) = 0;
  // Declares that no earlier moment will be used again.
  virtual void forget() {}
};

std::unique_ptr<StreamClock> make_host_clock();

}  // namespace trivet
