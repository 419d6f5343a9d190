// Prints GB/s of payload of every operation, with ranks as threads, as processes, and as processes with tensors from
// World::allocator ("heap"):
//
//   comm_bench [ranks ...] [--mib SIZES ...]      default: 2 4 --mib 0.0039 0.25 4 64
//
// Payload is the data of all_reduce and the whole tensor of the other operations; it is divided by the median time. For
// comparison, the program also prints the rate of memcpy of the largest size on one core, which is the cost of one pass over
// memory on this machine at this time.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "comm/futex.h"
#include "comm/shm/shm_world.h"
#include "comm/world.h"

namespace trivet::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

template <typename Action>
double median_seconds(const Action& action, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    action();
    times.push_back(Seconds(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Case {
  const char* name;
  std::function<void(ProcessGroup&, TensorView whole, TensorView other, Stream&)> run;
};

// `whole` is a view of the whole tensor; shards are its equal parts.
std::vector<Case> cases() {
  const auto shard = [](ProcessGroup& group, TensorView whole) {
    const int64_t count = whole.elements() / group.size();
    return whole.slice(group.rank() * count, count);
  };
  return {
      {"all_reduce", [](auto& g, TensorView whole, TensorView, Stream& s) { g.all_reduce(whole, ReduceOp::Sum, s); }},
      {"reduce_scatter", [shard](auto& g, TensorView whole, TensorView,
                                 Stream& s) { g.reduce_scatter(whole, shard(g, whole), ReduceOp::Sum, s); }},
      {"all_gather", [shard](auto& g, TensorView whole, TensorView, Stream& s) { g.all_gather(shard(g, whole), whole, s); }},
      {"all_to_all", [](auto& g, TensorView whole, TensorView other, Stream& s) { g.all_to_all(whole, other, s); }},
      {"broadcast", [](auto& g, TensorView whole, TensorView, Stream& s) { g.broadcast(whole, 0, s); }},
      {"send",  // from the lower half of the ranks to the upper half
       [](auto& g, TensorView whole, TensorView, Stream& s) {
         const int half = g.size() / 2;
         if (g.rank() < half)
           g.send(whole, g.rank() + half, s);
         else if (g.rank() < 2 * half)
           g.receive(whole, g.rank() - half, s);
       }},
  };
}

void measure(World& world, Allocator& memory, const char* kind, DType dtype, const std::vector<double>& sizes_mib) {
  const auto stream = make_inline_stream();
  for (double mib : sizes_mib) {
    const int64_t bytes = std::max<int64_t>(static_cast<int64_t>(mib * (1 << 20)) / 4096 * 4096, 4096);
    MemoryMeter meter;
    const Shape shape{bytes / size_of(dtype)};
    Buffer whole(memory, meter, MemoryCategory::Buffers, dtype, shape),
        other(memory, meter, MemoryCategory::Buffers, dtype, shape);
    const int repeats = bytes < (1 << 20) ? 401 : bytes < (16 << 20) ? 41 : 11;
    for (const Case& c : cases()) {
      const auto once = [&] {
        c.run(world.group(), whole.view(), other.view(), *stream);
        world.group().barrier(*stream);
      };
      once();
      const double seconds = median_seconds(once, repeats);
      if (world.rank() == 0)
        fmt::print("{:<9} {:>2} {:<8} {:>10.3f} MiB  {:<15} {:>9.1f} us {:>7.2f} GB/s\n", kind, world.size(), name_of(dtype),
                   static_cast<double>(bytes) / (1 << 20), c.name, seconds * 1e6, static_cast<double>(bytes) / seconds / 1e9);
    }
  }
  std::fflush(stdout);
}

void measure_copy(double mib) {
  const auto bytes = static_cast<size_t>(mib * (1 << 20));
  std::vector<std::byte> from(bytes), to(bytes);
  const double seconds = median_seconds([&] { std::memcpy(to.data(), from.data(), bytes); }, 11);
  fmt::print("memcpy of {} MiB on one core: {:.2f} GB/s\n", mib, static_cast<double>(bytes) / seconds / 1e9);
  std::fflush(stdout);
}

// Forks one process per rank; they meet in a page of shared memory.
void run_processes(int ranks, const std::function<void(World&)>& body) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* calls = new (page) SharedCounter;
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    int own_calls = 0;
    ShmPlace place{rank, ranks, fmt::format("/trivet-bench{}-world", getppid()), "here", {}};
    place.barrier = [&] {
      const auto target = static_cast<uint32_t>(++own_calls * ranks);
      calls->advance();
      while (!calls->wait(target, std::chrono::milliseconds(20))) {
      }
    };
    body(*make_shm_world(place, {}, std::make_shared<JobState>()));
    _exit(0);
  }
  for (int rank = 0; rank < ranks; ++rank) wait(nullptr);
  munmap(page, 4096);
}

}  // namespace
}  // namespace trivet::comm

int main(int argc, char** argv) {
  using namespace trivet;
  std::vector<int> ranks;
  std::vector<double> sizes;
  bool reading_sizes = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--mib")
      reading_sizes = true;
    else if (reading_sizes)
      sizes.push_back(std::stod(argv[i]));
    else
      ranks.push_back(std::stoi(argv[i]));
  }
  if (ranks.empty()) ranks = {2, 4};
  if (sizes.empty()) sizes = {4096.0 / (1 << 20), 0.25, 4, 64};
  comm::measure_copy(*std::max_element(sizes.begin(), sizes.end()));
  for (int n : ranks)
    for (DType dtype : {DType::Float32, DType::BFloat16}) {
      comm::run_threads(n, [&](comm::World& world) { comm::measure(world, world.allocator(), "threads", dtype, sizes); });
      comm::run_processes(n, [&](comm::World& world) {
        comm::measure(world, host_allocator(), "processes", dtype, sizes);
        comm::measure(world, world.allocator(), "heap", dtype, sizes);
        world.close();
      });
    }
}
