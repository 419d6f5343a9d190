// A CUDA device that is simulated on the CPU: how it behaves, and what tests can set and ask.
//
//   host thread --- launch, copy, record ---> stream (a queue and a thread of its own) ---> blocks, one after another
//
// Threads of a block are fibers that run until they wait: at a barrier, or for the other lanes of a warp operation. Their order
// is a setting. If a thread does not come to a barrier at which others wait, the launch fails with a report. Under
// ThreadSanitizer each fiber counts as a thread of its own that only barriers order, so that a missing barrier between two
// accesses to the same address is found whatever the order of the fibers was. Races between two blocks are not found.
//
// Streams really run at the same time, so that a missing wait is a race, too. All of them behave as with cudaStreamNonBlocking,
// the default stream included. Device memory is memory of the host, full of 0xFF (NaN in any float type) until it is written;
// kernels may touch all memory of the process, but copies are checked against what was allocated. The bounds of device memory
// are checked when it is freed, and by AddressSanitizer at each access. With `protect`, nobody may access device memory while
// no stream works, so that host code that does so, which a GPU would not allow, crashes (not every time: a stream may be
// working at that moment).
//
// The first call of the runtime reads the configuration from the environment, for programs that tests start: CUDA_SHIM_DEVICES,
// CUDA_SHIM_DRIVER_VERSION, CUDA_SHIM_MEMORY_BYTES, CUDA_SHIM_CAPABILITY (90 is 9.0), CUDA_SHIM_PROTECT (1), CUDA_SHIM_ORDER
// (in_order, reversed or a number, which is the seed of a shuffled order).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace cuda_shim {

enum class Order { InOrder, Reversed, Shuffled };

struct Configuration {
  int devices = 1;
  int driver_version = 13000;  // 0: no driver; below the runtime's version: too old
  int capability = 90;
  int multiprocessors = 4;
  int64_t memory_bytes = int64_t{1} << 32;  // of each device
  int64_t pinned_bytes = int64_t{1} << 40;  // host memory: limit of each allocation
  Order order = Order::InOrder;             // of the threads of a block and of the blocks of a grid
  uint32_t seed = 1;                        // of the shuffled order
  bool protect = false;                     // host code that accesses device memory crashes
};

const Configuration& configuration();
// Waits for all streams, forgets faults, then changes the device. Memory and streams stay. No other thread may use the device
// meanwhile.
void configure(const Configuration& configuration);

// Sets a configuration for the length of a scope.
class Configured {
 public:
  explicit Configured(const Configuration& changed) : before_(configuration()) { configure(changed); }
  ~Configured() { configure(before_); }
  Configured(const Configured&) = delete;
  Configured& operator=(const Configured&) = delete;

 private:
  Configuration before_;
};

// Counts what has happened on all devices since the process started: differences show what a step does not do.
struct Counts {
  int64_t launches = 0;  // by the host; those of a graph do not count
  int64_t graph_launches = 0;
  int64_t host_waits = 0;   // calls that made the host wait for the device
  int64_t allocations = 0;  // of device and pinned memory
  int64_t events_made = 0;
  int64_t streams_made = 0;
  int64_t pageable_copies = 0;  // asynchronous copies from or to memory that is not pinned: the device waits for the host or
                                // the host for the device
};
Counts counts();

// From now on every call on the current device fails with `error`, as after an illegal access, until configure() is called.
void break_device(cudaError_t error);
// Says what was wrong with the kernel that broke the device by itself; empty if none did since configure().
std::string fault_report();

// The bytes that are allocated on the current device: 0 when a test has released everything.
int64_t allocated_bytes();

// With `protect`, decides whether the host may access managed memory while no stream works. It may, until a test hides it.
void hide_managed_memory(bool hidden);

// Waits at the named barrier `id` (bar.sync id, threads): emulates what is written in PTX under nvcc.
void named_barrier(int id, int threads);

}  // namespace cuda_shim
