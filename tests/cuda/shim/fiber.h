// A stack on which a function runs that can stop in the middle. resume() returns when the function pauses, and the next
// resume() goes on from there. The sanitizers are told of each switch.
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
  // On the fiber itself, once, before anything else of `entry`.
  void entered();

 private:
  char* stack_;
  void* stack_pointer_;
  void* host_stack_pointer_ = nullptr;
  // What the sanitizers keep about either side.
  void *fiber_context_ = nullptr, *host_context_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
};

// Orders what was done before release(object) on one fiber before what comes after acquire(object) on another: for
// ThreadSanitizer, to which a switch of fibers orders nothing.
void release_to(void* object);
void acquire_from(void* object);

// While one lives, ThreadSanitizer looks away from what this thread or fiber does: from what we keep about streams and fibers,
// that is. Accesses are no races then, and locks order nothing.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace cuda_shim
