#include "block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "tensor_core_emulation.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace cuda_shim {

constinit thread_local int lane = 0;
constinit thread_local unsigned char* dynamic_shared = nullptr;

namespace {

thread_local BlockRunner* current_runner = nullptr;
constexpr size_t kSharedAlignment = 1024;

uint3 unflatten(int64_t linear, dim3 size) {
  return {static_cast<unsigned>(linear % size.x), static_cast<unsigned>(linear / size.x % size.y),
          static_cast<unsigned>(linear / size.x / size.y)};
}

}  // namespace

BlockRunner::BlockRunner() : dynamic_shared_(nullptr, std::free) { current_runner = this; }
BlockRunner::~BlockRunner() { current_runner = nullptr; }
BlockRunner& BlockRunner::current() { return *current_runner; }

void BlockRunner::fiber_main() {
  BlockRunner& runner = current();
  Thread& thread = *runner.running_;
  thread.fiber->entered();
  for (;;) {
    acquire_from(&runner.start_);
    (*runner.kernel_)();
    if (const int left = forget_copies(thread.number))
      runner.fail(fmt::format("ended without having waited for {} groups of cp.async", left));
    release_to(&runner.end_);
    thread.done = true;
    thread.fiber->pause();
  }
}

std::string BlockRunner::run(dim3 grid, dim3 block, size_t dynamic_shared_bytes, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  order_ = configuration().order;
  random_.seed(configuration().seed);
  prepare_threads(grid, block, dynamic_shared_bytes);
  failure_.clear();
  const int64_t blocks = static_cast<int64_t>(grid.x) * grid.y * grid.z;
  const int64_t offset = order_ == Order::Shuffled ? static_cast<int64_t>(random_()) % blocks : 0;
  for (int64_t i = 0; i < blocks && failure_.empty(); ++i) {
    const int64_t turn = order_ == Order::InOrder ? i : blocks - 1 - i;
    run_block(unflatten((turn + offset) % blocks, grid));
  }
  // Fibers that stopped in the middle of a kernel cannot be used again.
  if (!failure_.empty()) threads_.clear();
  return failure_;
}

void BlockRunner::prepare_threads(dim3 grid, dim3 block, size_t dynamic_shared_bytes) {
  thread_count_ = static_cast<int>(block.x * block.y * block.z);
  // Each launch gets new memory, no larger than requested, so that AddressSanitizer sees accesses beyond it.
  void* memory = nullptr;
  if (posix_memalign(&memory, kSharedAlignment, dynamic_shared_bytes) != 0) throw std::bad_alloc();
  dynamic_shared_.reset(memory);
  dynamic_shared_bytes_ = dynamic_shared_bytes;
  while (static_cast<int>(threads_.size()) < thread_count_) {
    const int number = static_cast<int>(threads_.size());
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->number = number;
    threads_.back()->fiber = std::make_unique<Fiber>(fiber_main, number);
  }
  for (int i = 0; i < thread_count_; ++i) {
    threads_[i]->index = unflatten(i, block);
    forget_copies(i);  // left by a launch that failed
  }
  gridDim = grid;
  blockDim = block;
  dynamic_shared = static_cast<unsigned char*>(memory);
}

void BlockRunner::run_block(uint3 index) {
  std::memset(dynamic_shared_.get(), 0xFF, dynamic_shared_bytes_);
  block_barrier_ = {.name = "__syncthreads", .expected = thread_count_};
  warp_barriers_.clear();
  warp_barriers_.resize((thread_count_ + warpSize - 1) / warpSize);
  named_barriers_.clear();
  std::vector<int> order(thread_count_);
  for (int i = 0; i < thread_count_; ++i) {
    order[i] = i;
    threads_[i]->waits_at = nullptr;
    threads_[i]->done = false;
  }
  blockIdx = index;
  release_to(&start_);
  for (int remaining = thread_count_; remaining > 0;) {
    arrange(order);
    bool any_ran = false;
    for (int i : order) {
      Thread& thread = *threads_[i];
      if (thread.done || thread.waits_at) continue;
      any_ran = true;
      running_ = &thread;
      threadIdx = thread.index;
      lane = thread.number % warpSize;
      thread.fiber->resume();
      if (thread.done) --remaining;
    }
    if (!any_ran) failure_ = "divergent barrier: " + who_waits_where();
    if (!failure_.empty()) {
      acquire_from(&end_);
      failure_ = fmt::format("block ({}, {}, {}): {}", index.x, index.y, index.z, failure_);
      return;
    }
  }
  acquire_from(&end_);
}

void BlockRunner::arrange(std::vector<int>& order) {
  switch (order_) {
    case Order::InOrder: return;
    case Order::Reversed: return std::sort(order.begin(), order.end(), std::greater<>());
    case Order::Shuffled: return std::shuffle(order.begin(), order.end(), random_);
  }
}

std::string BlockRunner::who_waits_where() const {
  std::map<std::string, std::vector<int>> groups;
  for (int i = 0; i < thread_count_; ++i) {
    const Thread& thread = *threads_[i];
    groups[thread.done ? "have returned" : "wait at " + thread.waits_at->name].push_back(i);
  }
  std::vector<std::string> parts;
  for (const auto& [where, members] : groups)
    parts.push_back(fmt::format("{} threads (first {}) {}", members.size(), members.front(), where));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void BlockRunner::wait_at(Barrier& barrier) {
  Thread& thread = *running_;
  release_to(&barrier);
  arrive(thread, barrier);
  if (thread.waits_at) {
    release_to(&end_);  // in case no other thread arrives
    thread.fiber->pause();
  }
  acquire_from(&barrier);
}

void BlockRunner::arrive(Thread& thread, Barrier& barrier) {
  const Unseen guard;
  if (++barrier.arrived < barrier.expected) {
    thread.waits_at = &barrier;
    return;
  }
  barrier.arrived = 0;
  std::copy(std::begin(barrier.given), std::end(barrier.given), std::begin(barrier.taken));
  for (int i = 0; i < thread_count_; ++i)
    if (threads_[i]->waits_at == &barrier) threads_[i]->waits_at = nullptr;
}

void BlockRunner::fail(std::string what) {
  failure_ = fmt::format("thread {}: {}", running_->number, what);
  std::string().swap(what);  // no destructor on this stack will run
  release_to(&end_);
  for (;;) running_->fiber->pause();
}

bool BlockRunner::in_dynamic_shared(const void* address, size_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(dynamic_shared_.get()), place = reinterpret_cast<uintptr_t>(address);
  return place >= first && place + bytes <= first + dynamic_shared_bytes_;
}

Barrier& BlockRunner::warp_barrier(uint32_t mask, WarpOperation operation) {
  static const char* const names[] = {"__syncwarp", "a shuffle", "a vote", "an instruction on matrices"};
  if (!(mask >> lane & 1))
    fail(fmt::format("{} with mask {:#010x}, which does not include its lane", names[static_cast<int>(operation)], mask));
  const Unseen guard;
  const int warp = running_->number / warpSize;
  auto& barriers = warp_barriers_[warp];
  for (const auto& barrier : barriers)
    if (barrier->mask == mask && barrier->operation == operation) return *barrier;
  const int lanes = std::min(warpSize, thread_count_ - warp * warpSize);
  const uint32_t there = lanes == warpSize ? ~0u : (1u << lanes) - 1;
  auto barrier = std::make_unique<Barrier>();
  barrier->name = names[static_cast<int>(operation)];
  barrier->mask = mask;
  barrier->operation = operation;
  barrier->expected = std::popcount(mask & there);
  std::fill(std::begin(barrier->given), std::end(barrier->given), ~uint64_t{0});
  barriers.push_back(std::move(barrier));
  return *barriers.back();
}

Barrier& BlockRunner::named_barrier(int number, int threads) {
  const Unseen guard;
  for (const auto& barrier : named_barriers_)
    if (barrier->number == number && (barrier->expected == threads || barrier->arrived == 0)) {
      barrier->expected = threads;
      return *barrier;
    }
  auto barrier = std::make_unique<Barrier>();
  barrier->name = fmt::format("barrier {} of {}", number, threads);
  barrier->number = number;
  barrier->expected = threads;
  named_barriers_.push_back(std::move(barrier));
  return *named_barriers_.back();
}

void block_barrier() {
  BlockRunner& runner = BlockRunner::current();
  runner.wait_at(runner.block_barrier());
}

const uint64_t* exchange(WarpOperation operation, uint32_t mask, uint64_t value) {
  BlockRunner& runner = BlockRunner::current();
  Barrier& barrier = runner.warp_barrier(mask, operation);
  barrier.given[lane] = value;
  runner.wait_at(barrier);
  return barrier.taken;
}

void named_barrier(int id, int threads) {
  BlockRunner& runner = BlockRunner::current();
  runner.wait_at(runner.named_barrier(id, threads));
}

}  // namespace cuda_shim
