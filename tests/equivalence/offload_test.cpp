// Offload is a placement: it changes no bit, whatever is offloaded and however it is staged.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "tests/equivalence/tiny_run.h"
#include "tests/support/optimizer_types.h"
#include "tests/support/temporary_folder.h"

namespace trivet::test {
namespace {

// Sub-groups are far smaller than a block, and all weights that can be are in the file.
Config offloaded(Config config, const TemporaryFolder& folder, bool optimizer, bool weights) {
  ZeroConfig& zero = config.zero;
  zero.sub_group_size = 3000;  // not a multiple of the alignment
  if (optimizer) {
    zero.offload_optimizer.device = OffloadDevice::Nvme;
    zero.offload_optimizer.nvme_path = folder.path();
    zero.offload_optimizer.buffer_count = 12;
  }
  if (weights) {
    zero.offload_param.device = OffloadDevice::Nvme;
    zero.offload_param.nvme_path = folder.path();
    zero.offload_param.max_in_cpu = 0;
    zero.offload_param.buffer_size = 5000;
    zero.offload_param.buffer_count = 3;
  }
  config.aio.block_size = 5000;
  return config;
}

Config config_of(model::Type type, int stage, bool bf16, bool layout) {
  Config config = tiny_config(type);
  config.zero.stage = stage;
  config.zero.overlap_comm = stage == 3;
  config.zero.stage3_max_reuse_distance = 0;
  config.bf16.enabled = bf16;
  config.reproducible = layout ? Reproducible::Layout : Reproducible::Run;
  return config;
}

TEST(Offload, OfOptimizerStatesChangesNoBit) {
  const TemporaryFolder folder;
  for (const auto& [ranks, stage, bf16, layout] : {std::tuple{1, 1, false, false},
                                                   {1, 2, true, true},
                                                   {2, 1, true, false},
                                                   {2, 2, false, true},
                                                   {2, 3, true, false},
                                                   {2, 3, false, false},
                                                   {3, 2, true, false}}) {
    const Config config = config_of(model::Type::Gpt, stage, bf16, layout);
    const Trace plain = run({.ranks = ranks, .config = config});
    Config files = offloaded(config, folder, true, false);
    for (const bool read : {false, true})
      for (const bool write : {false, true}) {
        files.zero.offload_optimizer.pipeline_read = read;
        files.zero.offload_optimizer.pipeline_write = write;
        EXPECT_EQ(difference(plain, run({.ranks = ranks, .config = files})), "")
            << ranks << " ranks, stage " << stage << (bf16 ? ", bf16" : "") << ", pipeline " << read << write;
      }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Offload, OfWeightsChangesNoBit) {
  const TemporaryFolder folder;
  for (const auto& [ranks, bf16, layout, optimizer] : {std::tuple{1, false, false, false},
                                                       {1, true, false, true},
                                                       {2, true, true, true},
                                                       {2, false, false, true},
                                                       {2, true, false, false},
                                                       {3, true, false, true}}) {
    const Config config = config_of(model::Type::Llama, 3, bf16, layout);
    const Trace plain = run({.ranks = ranks, .config = config});
    for (const bool overlap : {false, true}) {
      Config files = offloaded(config, folder, optimizer, true);
      files.zero.overlap_comm = overlap;
      files.zero.offload_optimizer.pipeline_read = files.zero.offload_optimizer.pipeline_write = overlap;
      EXPECT_EQ(difference(plain, run({.ranks = ranks, .config = files})), "")
          << ranks << " ranks" << (bf16 ? ", bf16" : "") << ", overlap " << overlap;
    }
  }
}

class OffloadOfEveryOptimizer : public testing::TestWithParam<OptimizerType> {};

TEST_P(OffloadOfEveryOptimizer, ChangesNoBit) {
  const TemporaryFolder folder;
  for (const bool bf16 : {false, true}) {
    Config config = config_of(model::Type::Gpt, 3, bf16, false);
    config.optimizer.type = GetParam();
    config.optimizer.momentum = 0.9;
    const Trace plain = run({.ranks = 2, .config = config});
    Config files = offloaded(config, folder, true, true);
    EXPECT_EQ(difference(plain, run({.ranks = 2, .config = files})), "");
    files.zero.offload_optimizer.pipeline_read = true;
    files.zero.offload_optimizer.ratio = 0.5;
    files.zero.offload_param.max_in_cpu = 15'000;
    EXPECT_EQ(difference(plain, run({.ranks = 2, .config = files})), "") << "partly offloaded";
    config.zero.stage = files.zero.stage = 1;
    files.zero.offload_optimizer.ratio = 1;
    files.zero.offload_param.device = OffloadDevice::None;
    EXPECT_EQ(difference(run({.ranks = 1, .config = config}), run({.ranks = 1, .config = files})), "") << "one rank";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OffloadOfEveryOptimizer, testing::ValuesIn(test::optimizer_types()),
                         [](const auto& which) { return std::string(name_of(which.param)); });

// The runs have tied tables on two stages, split matrices, frozen layers and recomputation.
TEST(Offload, ComposesWithTheOtherAxes) {
  const TemporaryFolder folder;
  for (const auto& [pipeline, tensor, optimizer] :
       {std::tuple{2, 1, OptimizerType::AdamW}, {1, 2, OptimizerType::Lamb}, {2, 2, OptimizerType::AdamW}}) {
    Config config = config_of(model::Type::Gpt, 3, true, false);
    config.parallel.pipeline = pipeline;
    config.parallel.tensor = tensor;
    config.optimizer.type = optimizer;
    config.recompute = Recompute::Full;
    const TinyRun plain{.ranks = 2 * pipeline * tensor, .frozen = {"blocks.1"}, .config = config};
    TinyRun files = plain;
    files.config = offloaded(config, folder, true, true);
    files.config.zero.offload_optimizer.pipeline_write = true;
    EXPECT_EQ(difference(run(plain), run(files)), "") << "pipeline " << pipeline << ", tensor " << tensor;
  }
}

// Shards that several ranks hold: each keeps its own in its file. A second copy of gathered weights stays in memory.
TEST(Offload, ComposesWithShardsThatHaveReplicasAndWithASecondCopy) {
  const TemporaryFolder folder;
  struct Sizes {
    int ranks, stage;
    int64_t shards, secondary;
    bool bf16, layout;
  };
  for (const Sizes& sizes : {Sizes{4, 1, 2, 1, true, false},
                             {4, 2, 2, 1, false, true},
                             {4, 3, 2, 1, true, false},
                             {4, 3, 2, 1, false, true},
                             {6, 3, 3, 1, true, false},
                             {2, 3, 1, 1, true, false},
                             {4, 3, -1, 2, true, false},
                             {4, 3, 4, 2, false, true}}) {
    Config config = config_of(model::Type::Gpt, sizes.stage, sizes.bf16, sizes.layout);
    config.zero.mics_shard_size = sizes.shards;
    config.zero.zero_hpz_partition_size = sizes.secondary;
    const Trace plain = run({.ranks = sizes.ranks, .config = config});
    for (const bool weights : {false, true}) {
      if (weights && sizes.stage < 3) continue;  // offload_param needs stage 3
      EXPECT_EQ(difference(plain, run({.ranks = sizes.ranks, .config = offloaded(config, folder, true, weights)})), "")
          << sizes.ranks << " ranks, stage " << sizes.stage << ", shards " << sizes.shards << ", second copy "
          << sizes.secondary << (weights ? ", weights too" : "");
    }
  }
}

// Frozen weights are staged when they are initialized and loaded, never in a step, and the plan accounts for that.
TEST(Offload, OfFrozenWeightsThatAreLargerThanAllElse) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 2}) {
    Config config = config_of(model::Type::Gpt, 3, false, false);
    config.zero.overlap_comm = false;
    config.zero.stage3_prefetch_bucket_size = 0;
    const TinyRun plain{.ranks = ranks, .frozen = {"blocks.0", "blocks.1"}, .config = config};
    TinyRun files = plain;
    files.config = offloaded(config, folder, false, true);
    files.config.zero.sub_group_size = 1'000'000;
    files.save_to = folder.at(fmt::format("frozen-{}", ranks));
    EXPECT_EQ(difference(run(plain), run(files)), "");
    files.load_from = files.save_to;
    files.save_to.clear();
    files.steps = 6;
    EXPECT_NO_THROW(run(files));
  }
}

// A skipped step leaves weights and states unchanged, also in files.
TEST(Offload, SkippedStepsChangeNothing) {
  const TemporaryFolder folder;
  Config config = config_of(model::Type::Gpt, 3, false, false);
  config.fp16.enabled = true;
  config.fp16.initial_scale_power = 24;
  config.fp16.hysteresis = 1;
  const Trace plain = run({.ranks = 2, .steps = 12, .config = config});
  EXPECT_TRUE(std::any_of(plain.grad_norms.begin(), plain.grad_norms.end(), [](double norm) { return !std::isfinite(norm); }));
  const Trace files = run({.ranks = 2, .steps = 12, .config = offloaded(config, folder, true, true)});
  EXPECT_EQ(plain.loss_bits, files.loss_bits);
  EXPECT_EQ(plain.weights, files.weights);
}

TEST(Offload, CheckpointsContinueWithAndWithoutIt) {
  const TemporaryFolder folder;
  for (const bool bf16 : {false, true}) {
    Config config = config_of(model::Type::Gpt, 3, bf16, false);
    config.optimizer.type = bf16 ? OptimizerType::Lamb : OptimizerType::AdamW;
    const Config files = offloaded(config, folder, true, true);
    const Trace whole = run({.ranks = 2, .steps = 5, .config = config});
    for (const bool first : {false, true})
      for (const bool second : {false, true}) {
        const std::string saved = folder.at(fmt::format("saved-{}{}{}", bf16, first, second));
        run({.ranks = 2, .steps = 3, .save_to = saved, .config = first ? files : config});
        Trace rest = run({.ranks = 2, .steps = 5, .load_from = saved, .config = second ? files : config});
        EXPECT_EQ(whole.weights, rest.weights) << "offloaded before " << first << ", after " << second;
        EXPECT_EQ(whole.evaluation, rest.evaluation);
        EXPECT_EQ(whole.loss_bits.back(), rest.loss_bits.back());
      }
  }
}

}  // namespace
}  // namespace trivet::test
