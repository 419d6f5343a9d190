#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {  // ThreadSanitizer's, declared in no header
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#endif

#if !defined(__x86_64__)
#error "the switch between fibers is written for x86-64: configure with -DTRIVET_TESTS=OFF, or add this processor's switch"
#endif

// Saves the callee-saved registers and the stack pointer, then switches to another stack and restores its registers.
extern "C" void cuda_shim_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
.text
.globl cuda_shim_switch
.hidden cuda_shim_switch
.type cuda_shim_switch,@function
cuda_shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_shim_switch,.-cuda_shim_switch
)");

namespace cuda_shim {
namespace {

constexpr size_t kPage = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 256 << 10;  // instrumented frames are larger
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

// Stacks of fibers that have ended, for the next ones: each stream has fibers of its own, and a test makes many streams.
struct Stacks {
  std::mutex mutex;
  std::vector<char*> unused;
};
Stacks& stacks() {
  static auto* const stacks = new Stacks;  // streams may end when the program does
  return *stacks;
}
constexpr size_t kMostUnused = 4096;

char* make_stack() {
  // The lowest page stays inaccessible, so that a stack that overflows stops the program there.
  void* memory = mmap(nullptr, kStackBytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  char* const stack = static_cast<char*>(memory) + kPage;
  mprotect(stack, kStackBytes, PROT_READ | PROT_WRITE);
  return stack;
}

char* take_stack() {
  const Unseen unseen;
  const std::lock_guard lock(stacks().mutex);
  if (stacks().unused.empty()) return make_stack();
  char* const stack = stacks().unused.back();
  stacks().unused.pop_back();
  return stack;
}

void give_back(char* stack) {
  const Unseen unseen;
  const std::lock_guard lock(stacks().mutex);
  if (stacks().unused.size() < kMostUnused)
    stacks().unused.push_back(stack);
  else
    munmap(stack - kPage, kStackBytes + kPage);
}

}  // namespace

Fiber::Fiber(void (*entry)(), int number) : stack_(take_stack()) {
  // The tops of the stacks are shifted: otherwise all of them would fall into the same sets of the caches.
  const size_t top = kStackBytes - static_cast<size_t>(number % 16) * 192;
  void** stack = reinterpret_cast<void**>(stack_ + top);
  *--stack = nullptr;  // entry() starts with the alignment that a call would leave
  *--stack = reinterpret_cast<void*>(entry);
  for (int registers = 0; registers < 6; ++registers) *--stack = nullptr;
  stack_pointer_ = stack;
#if defined(__SANITIZE_THREAD__)
  fiber_context_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber_context_);
#endif
  give_back(stack_);
}

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&host_context_, stack_, kStackBytes);
  cuda_shim_switch(&host_stack_pointer_, stack_pointer_);
  __sanitizer_finish_switch_fiber(host_context_, nullptr, nullptr);
#elif defined(__SANITIZE_THREAD__)
  host_context_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber_context_, __tsan_switch_to_fiber_no_sync);
  cuda_shim_switch(&host_stack_pointer_, stack_pointer_);
#else
  cuda_shim_switch(&host_stack_pointer_, stack_pointer_);
#endif
}

void Fiber::entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &host_stack_, &host_stack_bytes_);
#endif
}

void Fiber::pause() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber_context_, host_stack_, host_stack_bytes_);
  cuda_shim_switch(&stack_pointer_, host_stack_pointer_);
  __sanitizer_finish_switch_fiber(fiber_context_, &host_stack_, &host_stack_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(host_context_, __tsan_switch_to_fiber_no_sync);
  cuda_shim_switch(&stack_pointer_, host_stack_pointer_);
#else
  cuda_shim_switch(&stack_pointer_, host_stack_pointer_);
#endif
}

#if defined(__SANITIZE_THREAD__)
void release_to(void* object) { __tsan_release(object); }
void acquire_from(void* object) { __tsan_acquire(object); }
Unseen::Unseen() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}
Unseen::~Unseen() {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
void release_to(void*) {}
void acquire_from(void*) {}
Unseen::Unseen() = default;
Unseen::~Unseen() = default;
#endif

}  // namespace cuda_shim
