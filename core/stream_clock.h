// Times what runs on streams. A moment is a ticket: on a device it comes later than the call that asked for it, where the
// stream gets there, so what it was in milliseconds is asked for afterwards.
//
// One clock a rank. now() and turn() are called on the thread that runs the program; a host's on any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace trivet {

class StreamClock {
 public:
  using Moment = int64_t;
  virtual ~StreamClock() = default;
  // Where the caller's work is: on a device, where its current stream has done all that it was given.
  virtual Moment now() = 0;
  // Where work that begins now got its turn, on a stream that was free at `free` and was given the work at `queued`.
  virtual Moment turn(Moment queued, Moment free) = 0;
  // Of CLOCK_MONOTONIC, which all processes of a host share. Waits until the moment has come.
  virtual double milliseconds(Moment moment) = 0;
  // No moment so far is asked for again.
  virtual void forget() {}
};

std::unique_ptr<StreamClock> make_host_clock();

}  // namespace trivet
