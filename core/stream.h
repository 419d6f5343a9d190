// A queue of work that runs in order. Work on different streams may overlap; events order it.
//
//   gather.wait(compute.record());  gather.enqueue(...);  compute.wait(gather.record());
//
// InlineStream runs the work at once on the caller's thread (no overlap). ThreadStream runs it on a thread of its own: this is
// what `overlap_comm` means on a CPU. An exception thrown by queued work is kept and thrown again by the next wait() or
// synchronize() that depends on it, so that a lost peer surfaces on the thread that runs the program.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace trivet {

// Told how long a thread was kept waiting for an event, from == to where it had happened; called on that thread.
class WaitObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~WaitObserver() = default;
  virtual void waited(Time from, Time to) = 0;
};

// A point in a stream's order. Copyable; an empty event has always happened.
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Blocks the caller until the work before the event is done; rethrows what that work threw.
  void synchronize() const;
  bool done() const;
  // From now on of all copies of this event. The observer must outlive them.
  void observe(WaitObserver& observer) const;

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
  // Blocks the caller until all work so far is done; rethrows what it threw.
  virtual void synchronize() = 0;
};

std::unique_ptr<Stream> make_inline_stream();
// The destructor waits for work that is queued. `name` shows in debuggers.
std::unique_ptr<Stream> make_thread_stream(const std::string& name);

}  // namespace trivet
