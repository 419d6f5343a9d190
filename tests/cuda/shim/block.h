// Runs the threads of a block as fibers, in a chosen order, from barrier to barrier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device_code.h"
#include "fiber.h"
#include "shim.h"

namespace cuda_shim {

// Threads wait at a barrier until as many as it expects have arrived. `mask` and `operation` are for barriers of a warp,
// `number` is for named barriers.
struct Barrier {
  std::string name;
  uint32_t mask = 0;
  WarpOperation operation = WarpOperation::Barrier;
  int number = 0;
  int expected = 0, arrived = 0;
  uint64_t given[warpSize], taken[warpSize];  // by lane; given is copied to taken when the last thread arrives
};

// Runs one grid at a time, and keeps its fibers from launch to launch. Belongs to one thread of the operating system, the
// stream's.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();

  // Runs all blocks. Returns what went wrong, in words; empty if nothing did.
  std::string run(dim3 grid, dim3 block, size_t dynamic_shared_bytes, const std::function<void()>& kernel);

  // These act for the fiber that runs now.
  static BlockRunner& current();
  void wait_at(Barrier& barrier);
  Barrier& block_barrier() { return block_barrier_; }
  Barrier& warp_barrier(uint32_t mask, WarpOperation operation);
  Barrier& named_barrier(int number, int threads);
  int running_thread() const { return running_->number; }
  bool in_dynamic_shared(const void* address, size_t bytes) const;
  // Ends the grid; the fiber does not continue.
  [[noreturn]] void fail(std::string what);

 private:
  struct Thread {
    int number;  // in the block
    uint3 index;
    std::unique_ptr<Fiber> fiber;
    const Barrier* waits_at = nullptr;
    bool done = true;
  };
  static void fiber_main();
  void arrive(Thread& thread, Barrier& barrier);
  void prepare_threads(dim3 grid, dim3 block, size_t dynamic_shared_bytes);
  void run_block(uint3 index);
  std::string who_waits_where() const;
  void arrange(std::vector<int>& order);

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  int thread_count_ = 0;
  Thread* running_ = nullptr;
  Barrier block_barrier_;
  std::vector<std::vector<std::unique_ptr<Barrier>>> warp_barriers_;  // by warp
  std::vector<std::unique_ptr<Barrier>> named_barriers_;
  std::string failure_;
  std::unique_ptr<void, void (*)(void*)> dynamic_shared_;
  size_t dynamic_shared_bytes_ = 0;
  // The start and the end of a block, for ThreadSanitizer. They are two, because a fiber may end before another one starts.
  char start_, end_;
  Order order_ = Order::InOrder;
  std::minstd_rand random_;
};

}  // namespace cuda_shim
