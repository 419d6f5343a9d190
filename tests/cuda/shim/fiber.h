// A stack for a function that can stop in the middle. resume() returns when the function pauses, and the next resume()
// continues from there. The sanitizers are told of each switch.
#pragma once

#include <cstddef>

namespace cuda_shim {

class Fiber {
 public:
  // `entry` pauses when a piece of its work is done and must not return. `number` spreads the stacks over cache sets.
  Fiber(void (*entry)(), int number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();
  void pause();  // on the fiber itself
  // To be called on the fiber itself, once, before anything else in `entry`.
  void entered();

 private:
  char* stack_;
  void* stack_pointer_;
  void* host_stack_pointer_ = nullptr;
  // What the sanitizers know about each side.
  void *fiber_context_ = nullptr, *host_context_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
};

// Tell ThreadSanitizer that what was done before release_to(object) on one fiber comes before what follows acquire_from(object)
// on another one. To ThreadSanitizer, switching fibers orders nothing.
void release_to(void* object);
void acquire_from(void* object);

// While one lives, ThreadSanitizer ignores what this thread or fiber does: accesses are no races, and locks order nothing. It
// is for the shim's own bookkeeping of streams and fibers.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace cuda_shim
