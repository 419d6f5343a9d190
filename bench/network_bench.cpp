// Measures an operation of a job on several hosts. Every rank runs it, with the variables of docs/environment.md:
//
//   network_bench OPERATION MEBIBYTES COUNT [DTYPE [SUMS [TRANSPORT]]]
//
// OPERATION is all_reduce, reduce_scatter or all_gather; DTYPE is float32 if it is left out; SUMS says how floats are added
// over hosts, "chain" (if it is left out) or "exchange"; TRANSPORT is "auto" if it is left out, "ucx" or "gloo".
//
// The operation runs once to connect the ranks, and then COUNT times; its time is that until all ranks have done it. Rank 0
// prints a line of JSON: {"operation": "all_reduce", "bytes": 67108864, "seconds": [...], "processor_seconds": 0.31}. `bytes`
// is the size of the whole tensor; with 0 MEBIBYTES, of which there may be fractions, it has one cache line for each rank.
// `processor_seconds` is what one operation takes of all ranks' processors together.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  std::string operation;
  int64_t bytes = 0;
  int count = 1;
  DType dtype = DType::Float32;
  WorldOptions options;
};

using Operate = std::function<void(ProcessGroup&, TensorView whole, Stream&)>;

TensorView shard_of(const ProcessGroup& group, TensorView whole) {
  const int64_t count = whole.elements() / group.size();
  return whole.slice(group.rank() * count, count);
}

Operate operation_named(const std::string& name) {
  if (name == "all_reduce")
    return [](ProcessGroup& group, TensorView whole, Stream& stream) { group.all_reduce(whole, ReduceOp::Sum, stream); };
  if (name == "reduce_scatter")
    return [](ProcessGroup& group, TensorView whole, Stream& stream) {
      group.reduce_scatter(whole, shard_of(group, whole), ReduceOp::Sum, stream);
    };
  if (name == "all_gather")
    return
        [](ProcessGroup& group, TensorView whole, Stream& stream) { group.all_gather(shard_of(group, whole), whole, stream); };
  throw ConfigError(name + " is not one of all_reduce, reduce_scatter, all_gather");
}

// Processor time of this process, in user and system mode.
double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void run(const Setting& setting) {
  const Operate operate = operation_named(setting.operation);
  const auto world = connect(place_from_environment(current_environment()), setting.options);
  ProcessGroup& group = world->group();
  const int64_t least = 64 * group.size();
  const int64_t elements = std::max(setting.bytes, least) / size_of(setting.dtype) / group.size() * group.size();
  std::vector<std::byte> memory(elements * size_of(setting.dtype));
  const TensorView whole{memory.data(), setting.dtype, Shape{elements}};
  const auto stream = make_inline_stream();
  operate(group, whole, *stream);
  std::vector<double> seconds;
  const double processor_before = processor_seconds();
  for (int i = 0; i < setting.count; ++i) {
    group.barrier(*stream);
    const auto start = Clock::now();
    operate(group, whole, *stream);
    group.barrier(*stream);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::vector<double> used{(processor_seconds() - processor_before) / setting.count};
  group.all_reduce({used.data(), DType::Float64, Shape{1}}, ReduceOp::Sum, *stream);
  if (world->rank() == 0)
    fmt::print("{{\"operation\": \"{}\", \"bytes\": {}, \"seconds\": [{:.6f}], \"processor_seconds\": {:.6f}}}\n",
               setting.operation, whole.bytes(), fmt::join(seconds, ", "), used[0]);
  world->close();
}

}  // namespace
}  // namespace trivet::comm

int main(int count, char** words) {
  try {
    if (count < 4) throw trivet::ConfigError("give an operation, the size in MiB, and how often");
    trivet::comm::Setting setting{
        .operation = words[1], .bytes = static_cast<int64_t>(std::stod(words[2]) * (1 << 20)), .count = std::stoi(words[3])};
    if (count > 4) setting.dtype = trivet::from_name<trivet::DType>(words[4]).value();
    if (count > 5) setting.options.sums = trivet::from_name<trivet::comm::HostSums>(words[5]).value();
    if (count > 6) setting.options.transport = words[6];
    trivet::comm::run(setting);
  } catch (const std::exception& error) {
    fmt::print(stderr, "network_bench: {}\n", error.what());
    return 1;
  }
}
