// Measures the cost of offload: the bandwidth of the file store compared with a plain loop of large calls, and the time of a
// step with various data offloaded.
//
//   offload_bench FOLDER [MIB [STEPS]]        defaults: 1024 MiB, 5 steps
//
// The bandwidth is MB/s of writing and reading the same bytes, uncached; the loop uses one thread and calls of 1 MiB, as dd
// does with oflag=direct. The step is that of a GPT with 4 layers of 512 (13 M parameters) in bfloat16, on one rank, with
// AdamW; the variants alternate and the results are medians.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/median.h"
#include "engine/engine.h"
#include "zero/offload/file_store.h"

namespace trivet {
namespace {

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class PlainFile {
 public:
  explicit PlainFile(const std::string& folder, int64_t bytes)
      : file_(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600)) {
    if (file_ < 0 || ::posix_fallocate(file_, 0, bytes) != 0) throw std::runtime_error("cannot make a file in " + folder);
  }
  ~PlainFile() { ::close(file_); }
  void write(std::byte* data, int64_t bytes) {
    for_blocks(bytes, [&](int64_t at, size_t count) { return ::pwrite(file_, data + at, count, at); });
  }
  void read(std::byte* data, int64_t bytes) {
    for_blocks(bytes, [&](int64_t at, size_t count) { return ::pread(file_, data + at, count, at); });
  }

 private:
  template <typename Call>
  void for_blocks(int64_t bytes, Call&& call) {
    constexpr int64_t kBlock = int64_t{1} << 20;
    for (int64_t at = 0; at < bytes; at += kBlock)
      if (call(at, static_cast<size_t>(std::min(kBlock, bytes - at))) <= 0) throw std::runtime_error("I/O error");
  }
  int file_;
};

void bandwidth(const std::string& folder, int64_t bytes) {
  constexpr int kRounds = 3;
  MemoryMeter meter;
  Buffer memory(host_allocator(), meter, MemoryCategory::Buffers, DType::UInt8, {bytes});
  auto* const data = static_cast<std::byte*>(memory.view().data);
  for (int64_t i = 0; i < bytes; i += 8) *reinterpret_cast<int64_t*>(data + i) = i * 2654435761;
  std::map<std::string, std::vector<double>> write, read;
  PlainFile plain(folder, bytes);
  std::map<int, std::unique_ptr<zero::offload::FileStore>> stores;
  for (const int threads : {1, 4, 8}) {
    stores[threads] = zero::offload::make_file_store(
        real_file_system(), {.path = folder + "/bench", .folder_key = "FOLDER", .capacity_bytes = bytes, .threads = threads},
        [](const std::string& text) { std::printf("%s\n", text.c_str()); });
    stores[threads]->allocate(bytes);
  }
  for (int round = 0; round < kRounds; ++round) {
    write["loop"].push_back(seconds([&] { plain.write(data, bytes); }));
    read["loop"].push_back(seconds([&] { plain.read(data, bytes); }));
    for (const auto& [threads, store] : stores) {
      const std::string name = "store, " + std::to_string(threads) + " threads";
      write[name].push_back(seconds([&] { store->write(0, data, bytes).wait(); }));
      read[name].push_back(seconds([&] { store->read(0, data, bytes).wait(); }));
    }
  }
  std::printf("%-20s %12s %12s   MB/s, %lld MiB, median of %d\n", "", "write", "read", static_cast<long long>(bytes >> 20),
              kRounds);
  for (const auto& [name, times] : write)
    std::printf("%-20s %12.0f %12.0f\n", name.c_str(), static_cast<double>(bytes) / median(times) / 1e6,
                static_cast<double>(bytes) / median(read[name]) / 1e6);
}

Config step_config(const std::string& folder, bool optimizer, bool weights, bool pipelined) {
  Config config;
  config.source = "offload_bench";
  config.model.layers = 4;
  config.model.hidden_size = 512;
  config.model.heads = 8;
  config.model.sequence_length = 256;
  config.batch.micro_batch_size = 4;
  config.batch.gradient_accumulation_steps = 1;
  config.bf16.enabled = true;
  config.zero.stage = 3;
  config.zero.overlap_comm = true;
  config.zero.sub_group_size = 1'000'000;
  if (optimizer) {
    config.zero.offload_optimizer = {.device = OffloadDevice::Nvme,
                                     .nvme_path = folder,
                                     .buffer_count = 9,
                                     .pipeline_read = pipelined,
                                     .pipeline_write = pipelined};
  }
  if (weights) {
    config.zero.offload_param.device = OffloadDevice::Nvme;
    config.zero.offload_param.nvme_path = folder;
    config.zero.offload_param.max_in_cpu = 0;
  }
  return config;
}

struct Run {
  std::string name;
  std::unique_ptr<Engine> engine;
  std::vector<double> times;
};

void steps(const std::string& folder, int count) {
  comm::run_threads(1, [&](comm::World& world) {
    std::vector<Run> runs;
    const auto add = [&](const std::string& name, const Config& config) {
      model::Model model = model::build(model::with_vocabulary(config.model, 256));
      Plan plan = make_plan(config, model, 1);
      runs.push_back(
          {name, std::make_unique<Engine>(std::move(plan), std::move(model), world, EngineOptions{.threads = 2}), {}});
    };
    add("in memory", step_config(folder, false, false, false));
    add("optimizer", step_config(folder, true, false, false));
    add("optimizer, pipelined", step_config(folder, true, false, true));
    add("both, pipelined", step_config(folder, true, true, true));
    const Config& config = runs[0].engine->plan().config;
    const Shape shape{config.batch.micro_batch_size, config.model.sequence_length};
    const std::vector<int32_t> tokens(static_cast<size_t>(shape.elements()), 7);
    const ConstTensorView view{tokens.data(), DType::Int32, shape};
    const std::vector<Microbatch> batch{{view, view, 0}};
    for (int step = -1; step < count; ++step)  // the first one is not counted
      for (Run& run : runs) {
        const double time = seconds([&] { run.engine->train_batch(batch); });
        if (step >= 0) run.times.push_back(time);
      }
    std::printf("%-20s %12s %12s %12s %12s\n", "step", "ms", "memory MiB", "read MiB", "written MiB");
    for (const Run& run : runs) {
      const RankPlan& rank = run.engine->plan().ranks[0];
      const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
      std::printf("%-20s %12.1f %12.1f %12.1f %12.1f\n", run.name.c_str(), median(run.times) * 1e3,
                  mebibytes(rank.memory.total()), mebibytes(rank.state_file.bytes_read + rank.weight_file.bytes_read),
                  mebibytes(rank.state_file.bytes_written + rank.weight_file.bytes_written));
    }
  });
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: offload_bench FOLDER [MIB [STEPS]]\n");
    return 2;
  }
  const int64_t mebibytes = argc > 2 ? std::atoll(argv[2]) : 1024;
  trivet::bandwidth(argv[1], mebibytes << 20);
  trivet::steps(argv[1], argc > 3 ? std::atoi(argv[3]) : 5);
}
