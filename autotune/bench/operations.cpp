#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <numeric>

#include "autotune/bench/bench.h"
#include "autotune/bench/run_steps.h"
#include "autotune/units.h"
#include "core/median.h"
#include "engine/backend/backend.h"

namespace trivet::autotune {
namespace {

using comm::Operation;
using comm::ReduceOp;

struct Kind {
  Operation operation;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::Float32;
};

// The operations that training steps do.
constexpr Kind kKinds[] = {{Operation::AllReduce, ReduceOp::Sum, DType::Float32},
                           {Operation::AllReduce, ReduceOp::Sum, DType::BFloat16},
                           {Operation::AllReduce, ReduceOp::Sum, DType::Int64},
                           {Operation::AllReduce, ReduceOp::TreeSum, DType::Float32},
                           {Operation::AllReduce, ReduceOp::TreeSum, DType::BFloat16},
                           {Operation::AllReduce, ReduceOp::Max, DType::Float32},
                           {Operation::ReduceScatter, ReduceOp::Sum, DType::Float32},
                           {Operation::ReduceScatter, ReduceOp::Sum, DType::BFloat16},
                           {Operation::ReduceScatter, ReduceOp::Sum, DType::Int64},
                           {Operation::ReduceScatter, ReduceOp::TreeSum, DType::Float32},
                           {Operation::ReduceScatter, ReduceOp::TreeSum, DType::BFloat16},
                           {Operation::AllGather},
                           {Operation::AllToAll},
                           {Operation::Broadcast},
                           {Operation::Send}};
constexpr int64_t kSmallest = 1 << 10, kLargest = 1 << 26;  // bytes of the whole tensor
constexpr int kMaxRounds = 25, kFewestRounds = 5;

class Operations {
 public:
  Operations(comm::World& world, const BenchOptions& options)
      : world_(world),
        backend_(make_backend(options.device == DeviceChoice::Cuda ? Device::Cuda : Device::Cpu,
                              {.world = world.group(),
                               .meter = meter_,
                               .threads = options.threads,
                               .local_rank = options.local_rank >= 0 ? options.local_rank : world.rank()})),
        stream_(backend_->make_stream(pipeline::Queue::Meet, false)),
        memory_(backend_->allocator(), meter_, MemoryCategory::Buffers, DType::Int64, {kLargest / 8}),
        part_(backend_->allocator(), meter_, MemoryCategory::Buffers, DType::Int64, {kLargest / 8}) {
    backend_->kernels().zero(memory_.view());
    backend_->kernels().zero(part_.view());
  }

  std::string machine() const { return machine_name(*backend_); }

  // Measures all kinds and sizes: the median over rounds, each timed by its slowest rank.
  void measure(int size, double seconds, std::vector<OperationSample>& samples) {
    const std::unique_ptr<comm::ProcessGroup> group = group_of(size);
    const bool halves = std::has_single_bit(static_cast<unsigned>(size));      // TreeSum requires it
    const double each = seconds / static_cast<double>(std::size(kKinds)) / 9;  // 9 sizes of each kind
    for (const Kind& kind : kKinds) {
      if (kind.reduce == ReduceOp::TreeSum && !halves) continue;
      for (int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4)
        samples.push_back({kind.operation, kind.reduce, kind.dtype, bytes, size, time(group.get(), kind, bytes, each)});
    }
  }

  // Measures how much longer an operation takes on a stream of its own when all ranks have computed before: a thread
  // must wake up on each of them.
  double handover() {
    const std::unique_ptr<comm::ProcessGroup> group = group_of(world_.size());
    const std::unique_ptr<Stream> own = backend_->make_stream(pipeline::Queue::Gather, true);
    return std::max(0.0, small_operation(*group, *own) - small_operation(*group, *stream_));
  }

 private:
  // The group of neighbours to which this rank belongs; null on ranks that are left over.
  std::unique_ptr<comm::ProcessGroup> group_of(int size) {
    std::unique_ptr<comm::ProcessGroup> own;
    for (int first = 0; first + size <= world_.size(); first += size) {
      std::vector<int> ranks;
      for (int rank = first; rank < first + size; ++rank) ranks.push_back(rank);
      if (auto group = world_.group().subgroup(ranks, "bench")) own = std::move(group);
    }
    return own ? backend_->place(std::move(own)) : nullptr;
  }

  void meet() { world_.group().barrier(*meeting_); }

  // The mean of the middle half of the rounds.
  double small_operation(comm::ProcessGroup& group, Stream& stream) {
    constexpr int kRounds = 200;
    constexpr double kComputing = 200e-6;
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
      meet();
      for (const auto computing = Clock::now(); seconds_since(computing) < kComputing;) {
      }
      const auto begin = Clock::now();
      group.all_reduce({memory_.view().data, DType::Int64, {kSmallest / 8}}, ReduceOp::Sum, stream);
      stream.record().wait_on_host();
      rounds.push_back(slowest(seconds_since(begin)));
    }
    std::ranges::sort(rounds);
    return std::accumulate(rounds.begin() + kRounds / 4, rounds.begin() + kRounds * 3 / 4, 0.0) / (kRounds / 2);
  }

  double slowest(double seconds) {
    world_.group().all_reduce({&seconds, DType::Float64, {1}}, ReduceOp::Max, *meeting_);
    return seconds;
  }

  double time(comm::ProcessGroup* group, const Kind& kind, int64_t bytes, double seconds) {
    std::vector<double> rounds;
    double spent = 0;
    for (int round = 0; round <= kMaxRounds; ++round) {
      meet();
      const auto begin = Clock::now();
      if (group) run(*group, kind, bytes);
      stream_->record().wait_on_host();
      const double took = slowest(seconds_since(begin));
      if (round > 0) rounds.push_back(took);
      spent += took;
      if (round >= kFewestRounds && spent > seconds) break;
    }
    return median(rounds);
  }

  void run(comm::ProcessGroup& group, const Kind& kind, int64_t bytes) {
    const int64_t elements = bytes / size_of(kind.dtype), share = elements / group.size();
    const TensorView whole{memory_.view().data, kind.dtype, {share * group.size()}};
    const TensorView shard{part_.view().data, kind.dtype, {share}};
    switch (kind.operation) {
      case Operation::AllReduce: return group.all_reduce(whole, kind.reduce, *stream_);
      case Operation::ReduceScatter: return group.reduce_scatter(whole, shard, kind.reduce, *stream_);
      case Operation::AllGather: return group.all_gather(shard, whole, *stream_);
      case Operation::AllToAll: return group.all_to_all(whole, {part_.view().data, kind.dtype, whole.shape}, *stream_);
      case Operation::Broadcast: return group.broadcast(whole, 0, *stream_);
      case Operation::Send: return pass_on(group, whole);
      default: return;
    }
  }

  // Ranks send in pairs; a rank without a partner does nothing.
  void pass_on(comm::ProcessGroup& group, TensorView whole) {
    const int other = group.rank() ^ 1;
    if (other >= group.size()) return;
    group.rank() < other ? group.send(whole, other, *stream_) : group.receive(whole, other, *stream_);
  }

  comm::World& world_;
  MemoryMeter meter_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_, meeting_ = make_inline_stream();
  Buffer memory_, part_;
};

}  // namespace

MeasuredSetup measure_operations(comm::World& world, const BenchOptions& options) {
  MeasuredSetup setup = setup_of(world, options);
  if (world.size() == 1) return setup;
  const OwnCores cores(world, options.own_cores);
  Operations operations(world, options);
  std::vector<int> sizes{2};  // for neighbours in a pipeline, in any world
  for (int size = 3; size <= world.size(); ++size)
    if (world.size() % size == 0) sizes.push_back(size);
  for (const int size : sizes) {
    operations.measure(size, options.seconds / static_cast<double>(sizes.size()), setup.operations);
    if (world.rank() == 0) options.progress(fmt::format("groups of {}: {} operations", size, setup.operations.size()));
  }
  setup.handover_seconds = operations.handover();
  setup.machine = operations.machine();
  return setup;
}

}  // namespace trivet::autotune
