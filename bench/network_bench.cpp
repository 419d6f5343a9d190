// Measures an operation of a job on several hosts. Every rank runs it, with the variables of docs/environment.md:
//
//   network_bench OPERATION MEBIBYTES COUNT [DTYPE [TRANSPORT]]      all_reduce, reduce_scatter, all_gather; default: float32,
//   auto
//
// The operation runs once to connect the ranks, and then COUNT times; its time is that until all ranks have done it. Rank 0
// prints a line of JSON: {"operation": "all_reduce", "bytes": 67108864, "seconds": [...]}. `bytes` is the size of the whole
// tensor; with 0 MEBIBYTES, of which there may be fractions, it has one cache line for each rank.
#include <fmt/format.h>
#include <fmt/ranges.h>

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
  for (int i = 0; i < setting.count; ++i) {
    group.barrier(*stream);
    const auto start = Clock::now();
    operate(group, whole, *stream);
    group.barrier(*stream);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  if (world->rank() == 0)
    fmt::print("{{\"operation\": \"{}\", \"bytes\": {}, \"seconds\": [{:.6f}]}}\n", setting.operation, whole.bytes(),
               fmt::join(seconds, ", "));
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
    if (count > 5) setting.options.transport = words[5];
    trivet::comm::run(setting);
  } catch (const std::exception& error) {
    fmt::print(stderr, "network_bench: {}\n", error.what());
    return 1;
  }
}
