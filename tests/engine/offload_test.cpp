// Offload takes the memory and the traffic that the plan states, and its failures are named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "comm/world.h"
#include "core/error.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using trivet::support::Fault;
using trivet::support::FaultyFileSystem;

class Offload : public ::testing::Test {
 protected:
  ~Offload() override { EXPECT_TRUE(std::filesystem::is_empty(folder_.path())); }

  Config config(bool optimizer, bool weights) const {
    Config config = small_config();
    config.bf16.enabled = true;
    config.zero.stage = weights ? 3 : 2;
    config.zero.sub_group_size = 20'000;
    if (optimizer) {
      config.zero.offload_optimizer.device = OffloadDevice::Nvme;
      config.zero.offload_optimizer.nvme_path = folder_.path();
      config.zero.offload_optimizer.buffer_count = 12;
    }
    if (weights) {
      config.zero.offload_param.device = OffloadDevice::Nvme;
      config.zero.offload_param.nvme_path = folder_.path();
      config.zero.offload_param.max_in_cpu = 0;
    }
    return config;
  }

  // Runs two steps and an evaluation. Returns the peak of each category on each rank.
  static std::vector<MemoryBytes> train(const Config& config, int ranks, FileSystem& files = real_file_system()) {
    std::vector<MemoryBytes> bytes(ranks);
    comm::run_threads(ranks, [&](comm::World& world) {
      Engine engine(plan_of(config, ranks), model_of(config), world, {.threads = 1, .files = &files});
      const int64_t micro = engine.plan().batch.micro_batch_size, tokens = micro * config.model.sequence_length;
      const std::vector<int32_t> ids(tokens, 5);
      const ConstTensorView view{ids.data(), DType::Int32, {micro, config.model.sequence_length}};
      const std::vector<Microbatch> batch(engine.plan().batch.gradient_accumulation_steps, {view, view, 0});
      engine.train_batch(batch);
      engine.train_batch(batch);
      engine.evaluate(batch);
      bytes[world.rank()] = engine.measured_memory();
    });
    return bytes;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(Offload, TakesTheMemoryThatIsPlanned) {
  for (const bool optimizer : {true, false})
    for (const bool weights : {true, false})
      for (const int ranks : {1, 2})
        for (const OptimizerType type : {OptimizerType::AdamW, OptimizerType::Lamb, OptimizerType::Muon}) {
          Config config = this->config(optimizer, weights);
          config.optimizer.type = type;
          config.zero.overlap_comm = weights;
          config.zero.offload_optimizer.pipeline_read = config.zero.offload_optimizer.pipeline_write = weights;
          const MemoryBytes planned = plan_of(config, ranks).ranks[0].memory;
          for (const MemoryBytes& bytes : train(config, ranks))
            for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
              EXPECT_EQ(bytes[category], planned[category])
                  << name << " of " << ranks << " ranks, " << name_of(type) << optimizer << weights;
          if (optimizer) {
            EXPECT_EQ(planned[MemoryCategory::Optimizer], 0);
          }
        }
}

// A rank's shards have master weights and two moments of 4 bytes per element, and weights of 2; each tensor is padded to 4096
// bytes. A step reads and writes the states once, and gathers weights in the forward and backward of each microbatch.
TEST_F(Offload, StatesFilesAndTraffic) {
  const Config config = this->config(true, true);
  const Plan plan = plan_of(config, 2);
  const RankPlan& rank = plan.ranks[0];
  int64_t state_bytes = 0, weight_bytes = 0, states = 0, weights = 0, gathers = 0;
  for (const zero::BlockLayout& block : rank.layout.blocks)
    for (const zero::FlatGroup& group : block.groups) {
      const auto pad = [](int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
      if (group.role != zero::GroupRole::Own) continue;
      state_bytes += 3 * pad(4 * group.shard_elements);
      states += 3 * 4 * group.shard_elements;
      if (group.persistent) continue;
      weight_bytes += pad(2 * group.shard_elements);
      weights += 2 * group.shard_elements;
    }
  for (const auto& instruction : rank.programs.train)
    if (instruction.op == pipeline::Op::Unshard)
      for (const zero::FlatGroup& group : rank.layout.blocks[instruction.block].groups)
        if (!group.persistent && group.role == zero::GroupRole::Own) gathers += 2 * group.shard_elements;
  EXPECT_EQ(rank.state_file.bytes, state_bytes);
  EXPECT_EQ(rank.state_file.bytes_read, states);
  EXPECT_EQ(rank.state_file.bytes_written, states);
  EXPECT_EQ(rank.weight_file.bytes, weight_bytes);
  EXPECT_EQ(rank.weight_file.bytes_read, gathers + weights);
  EXPECT_EQ(rank.weight_file.bytes_written, weights);
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  EXPECT_THAT(to_text(plan), HasSubstr(fmt::format("  optimizer  {:>10.2f} MiB in a file per rank, {:>10.2f} MiB read and "
                                                   "{:>10.2f} MiB written per step",
                                                   mebibytes(state_bytes), mebibytes(states), mebibytes(states))));
  EXPECT_THAT(to_text(plan), HasSubstr(fmt::format("  weights    {:>10.2f} MiB in a file", mebibytes(weight_bytes))));
  EXPECT_THAT(to_json(plan), HasSubstr(fmt::format("\"bytes_read\": {},", states)));
  EXPECT_THAT(to_text(plan_of(this->config(false, false), 2)), Not(HasSubstr("offloaded")));
  Config kept = config;
  kept.zero.offload_param.max_in_cpu = 1'000'000'000;
  EXPECT_THAT(to_text(plan_of(kept, 2)), HasSubstr("max_in_cpu 1000000000 keeps all of them in memory"));
}

// Offloading makes room: during a step, weights, master weights and states are in memory one sub-group at a time.
TEST_F(Offload, NeedsLessMemory) {
  Config config = this->config(true, true);
  config.zero.sub_group_size = 2048;
  config.zero.offload_param.buffer_count = 1;
  Config resident = this->config(false, false);
  resident.zero.stage = 3;
  const MemoryBytes offloaded = plan_of(config, 1).ranks[0].memory, whole = plan_of(resident, 1).ranks[0].memory;
  EXPECT_LT(offloaded.total() - offloaded[MemoryCategory::Activations],
            (whole.total() - whole[MemoryCategory::Activations]) / 2);
}

class OffloadFaults : public Offload {
 protected:
  // The file has one thread of its own, so that calls have an order.
  std::string message(Fault fault, int64_t call, int ranks = 1) {
    Config config = this->config(true, true);
    config.aio.queue_depth = 1;
    config.zero.overlap_comm = ranks > 1;
    FaultyFileSystem files(real_file_system(), fault, call);
    try {
      train(config, ranks, files);
    } catch (const StorageError& error) {
      EXPECT_EQ(static_cast<int>(error.exit_code()), 21);
      return error.what();
    }
    return "nothing";
  }
};

TEST_F(OffloadFaults, AFullDiskIsKnownBeforeTheFirstStep) {
  EXPECT_THAT(message(Fault::DiskFull, 1),
              ContainsRegex("zero_optimization.offload_param.nvme_path: create .*/trivet-weights-rank-0: No space left on "
                            "device; this rank keeps [0-9]+ bytes there, [0-9]+ are free; free space, or name another folder"));
  EXPECT_THAT(message(Fault::NoSpace, 2), HasSubstr("zero_optimization.offload_optimizer.nvme_path: create "));
}

// The first calls initialize; later ones gather, update, evaluate.
TEST_F(OffloadFaults, OfTheDiskEndTheRunByName) {
  int failed = 0;
  for (int64_t call = 3; call < 400; call += 23) {
    const std::string what = message(Fault::IoError, call);
    failed += what != "nothing";
    if (what != "nothing") {
      EXPECT_THAT(what, ContainsRegex("trivet-(weights|optimizer)-rank-0: (read|write) of [0-9]+ bytes at [0-9]+: "
                                      "Input/output error"));
    }
  }
  EXPECT_GT(failed, 10);
  EXPECT_THAT(message(Fault::DiskFull, 50), HasSubstr("No space left on device"));
  EXPECT_THAT(message(Fault::IoError, 150, 2), HasSubstr("Input/output error"));
}

TEST_F(OffloadFaults, ShortTransfersAreFinished) {
  for (int64_t call = 3; call < 300; call += 41) EXPECT_EQ(message(Fault::ShortTransfer, call), "nothing") << call;
}

TEST_F(Offload, AFolderThatIsNotThereIsAMatterOfTheConfig) {
  Config config = this->config(true, false);
  config.zero.offload_optimizer.nvme_path = folder_.at("none");
  EXPECT_THAT([&] { train(config, 1); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr("zero_optimization.offload_optimizer.nvme_path: create " + folder_.path() +
                            "/none/trivet-optimizer-rank-0: No such file or directory; name a folder that exists")));
}

// Another model or number of ranks would need it.
TEST_F(Offload, AFolderThatNothingGoesToMustBeThereToo) {
  Config config = this->config(false, true);
  config.zero.offload_param.max_in_cpu = 1'000'000'000;
  for (const std::string name : {"none", "file"}) {
    std::ofstream(folder_.at("file")) << "a";
    config.zero.offload_param.nvme_path = folder_.at(name);
    EXPECT_THAT([&] { train(config, 1); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("zero_optimization.offload_param.nvme_path: create " +
                                                                folder_.at(name) + "/trivet-weights-rank-0: ")));
  }
  std::filesystem::remove(folder_.at("file"));
  config.zero.offload_param.nvme_path = folder_.path();
  EXPECT_NO_THROW(train(config, 1));
}

}  // namespace
}  // namespace trivet
