// A queue of work that runs in order. Work on different streams may overlap; events order it.
//
//   gather.wait(compute.record());  gather.enqueue(...);  compute.wait(gather.record());
//
// Enqueued work sees everything that the caller's kernels computed before. InlineStream runs the work at once on the caller's
// thread (no overlap). ThreadStream runs it on its own thread: this is what `overlap_comm` means on a CPU. An exception thrown
// by queued work is kept and thrown again by the next wait() or synchronize() that depends on it, so that a lost peer surfaces
// on the thread that runs the program.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/stream_clock.h"

namespace trivet {

// Learns how long each wait for an event took; from == to if the event had already happened when a thread got there. Called on
// the waiting thread or, if a device stream waits, on the thread that made it wait.
class WaitObserver {
 public:
  using Moment = StreamClock::Moment;
  virtual ~WaitObserver() = default;
  virtual Moment now() = 0;
  virtual void waited(Moment from, Moment to) = 0;
};

// A point in a stream's order. Copyable; an empty event has always happened.
class Event {
 public:
  // Each kind of stream has its own implementation.
  class State {
   public:
    virtual ~State() = default;
    virtual void synchronize() = 0;
    virtual void wait_on_host() { synchronize(); }
    virtual void observe(WaitObserver& observer) = 0;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Orders what the caller does next after the work before the event. On a CPU, the caller waits for that work, and an
  // exception that it threw is thrown again; on a device, the caller's stream waits (docs/cuda.md).
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  // Makes the caller wait until that work is done, on a device, too. The host needs this before it uses the results itself.
  void wait_on_host() const {
    if (state_) state_->wait_on_host();
  }
  // Reports waits for this event and all its copies from now on. The observer must outlive them.
  void observe(WaitObserver& observer) const {
    if (state_) state_->observe(observer);
  }
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual void enqueue(std::function<void()> work) = 0;
  virtual Event record() = 0;
  // Work enqueued after this waits for the event.
  virtual void wait(const Event& event) = 0;
  // record().synchronize()
  virtual void synchronize() = 0;
};

std::unique_ptr<Stream> make_inline_stream();
// The destructor waits for queued work. `name` shows in debuggers.
std::unique_ptr<Stream> make_thread_stream(const std::string& name);

}  // namespace trivet
