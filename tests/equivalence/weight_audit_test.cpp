// Weights that several ranks hold are compared: a healthy run is never accused, and a changed bit is found and located.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "engine/config/optimizer_traits.h"
#include "engine/divergence.h"
#include "engine/weight_audit.h"
#include "tests/equivalence/tiny_run.h"

namespace trivet::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

Config audited_config(model::Type type = model::Type::Gpt) {
  Config config = tiny_config(type);
  config.audit.weights_every = 1;
  return config;
}

using Change = std::function<void(uint32_t* bits)>;  // of the first weights of a parameter

void flip_exponent(uint32_t* bits) { bits[0] ^= 1u << 23; }
void swap_two(uint32_t* bits) { std::swap(bits[0], bits[1]); }

void change_weights(Engine& engine, const std::string& name, const Change& change) {
  int found = 0;
  engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    for (const zero::FlatParameter& parameter : group.layout().parameters) {
      const zero::HeldWeights held = group.held_weights();
      if (parameter.name != name || parameter.offset < held.first || parameter.offset >= held.first + held.view.elements())
        continue;
      ++found;
      ASSERT_EQ(held.view.dtype, DType::Float32);
      const ConstTensorView weights = held.view.slice(parameter.offset - held.first, 2);
      uint32_t bits[2];
      std::memcpy(bits, weights.data, sizeof(bits));
      change(bits);
      std::memcpy(const_cast<void*>(weights.data), bits, sizeof(bits));
    }
  });
  EXPECT_EQ(found, 1) << name;
}

// Flips the lowest bit of the first element of a parameter in tensor `which` of those that the optimizer updates.
void flip_low_bit(Engine& engine, const std::string& name, size_t which) {
  int found = 0;
  engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    for (const zero::FlatParameter& parameter : group.layout().parameters) {
      const zero::HeldWeights held = group.held_weights();
      const int64_t at = parameter.offset - held.owned_first;
      if (parameter.name != name || at < 0 || at >= held.owned_count) continue;
      ++found;
      ASSERT_LT(which, held.updated.size());
      auto* const values = static_cast<uint32_t*>(const_cast<void*>(held.updated[which].data));
      values[at] ^= 1u;
    }
  });
  EXPECT_EQ(found, 1) << name;
}

// Which of two ranks that divide the parameters holds the first element of this one.
int holder_of(const Config& config, const std::string& name) {
  std::atomic<int> holder = -1;
  const auto find = [&](Engine& engine, int world_rank, int64_t) {
    engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
      const zero::HeldWeights held = group.held_weights();
      for (const zero::FlatParameter& parameter : group.layout().parameters)
        if (parameter.name == name && parameter.offset >= held.owned_first &&
            parameter.offset < held.owned_first + held.owned_count)
          holder = world_rank;
    });
  };
  run({.ranks = 2, .steps = 1, .before_step = find, .config = config});
  return holder;
}

using ChangeOfRank = std::function<void(Engine& engine)>;

// The error of a run in which `rank` is changed before step 2 (counting from 0).
std::string message_after(const ChangeOfRank& change, const Config& config, int ranks, int rank) {
  const auto before_step = [&](Engine& engine, int world_rank, int64_t step) {
    if (world_rank == rank && step == 2) change(engine);
  };
  try {
    run({.ranks = ranks, .before_step = before_step, .config = config});
  } catch (const CommError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::RanksDisagree);
    return error.what();
  }
  return "nothing was noticed";
}

std::string message_after(const Change& change, const Config& config, int ranks, int rank, const std::string& parameter) {
  return message_after([&](Engine& engine) { change_weights(engine, parameter, change); }, config, ranks, rank);
}

TEST(WeightAudit, NamesTheRankThatTheMajorityOutvotes) {
  EXPECT_THAT(
      message_after(flip_exponent, audited_config(), 3, 2, "blocks.1.mlp.up.weight"),
      AllOf(HasSubstr("after step 3: rank 2 holds different weights from ranks 0, 1, first in blocks.1.mlp.up.weight (all "
                      "were equal after step 2)"),
            HasSubstr("audit.weights_every")));
}

TEST(WeightAudit, ExchangedElementsChangeTheDigest) {
  const auto total = [](Engine& engine) {
    uint64_t sum = 0;
    for (const WeightDigest& digest : digest_weights(engine.parameters(), engine.kernels(), Device::Cpu)) sum += digest.whole;
    return sum;
  };
  const auto before_step = [&](Engine& engine, int, int64_t step) {
    if (step != 1) return;
    const uint64_t before = total(engine);
    change_weights(engine, "blocks.1.mlp.up.weight", swap_two);
    EXPECT_NE(total(engine), before);
    change_weights(engine, "blocks.1.mlp.up.weight", swap_two);
    EXPECT_EQ(total(engine), before);
  };
  run({.ranks = 1, .steps = 2, .before_step = before_step, .config = audited_config()});
}

// However the data axis cuts a parameter into shards, their digests add up to that of the whole parameter.
TEST(WeightAudit, DigestsOfShardsAddUpToThatOfTheWhole) {
  const auto sums_over_data = [](int stage, int data) {
    std::mutex mutex;
    std::map<std::string, uint64_t> sums;  // of tensor rank 0, by parameter
    const auto before_step = [&](Engine& engine, int world_rank, int64_t step) {
      if (step != 0 || world_rank % 2 != 0) return;
      for (const WeightDigest& digest : digest_weights(engine.parameters(), engine.kernels(), Device::Cpu)) {
        const std::lock_guard lock(mutex);
        if (digest.unsplit != 0) sums[digest.parameter] += digest.unsplit;
      }
    };
    Config config = audited_config();
    config.parallel.tensor = 2;
    config.zero.stage = stage;
    config.zero.stage3_param_persistence_threshold = 0;
    run({.ranks = 2 * data, .steps = 1, .before_step = before_step, .config = config});
    return sums;
  };
  const auto whole = sums_over_data(0, 1);
  EXPECT_THAT(whole, Contains(Key("embedding.positions.weight")));
  for (const int stage : {1, 3})
    for (const int data : {2, 3})
      EXPECT_EQ(sums_over_data(stage, data), whole) << fmt::format("stage {}, data {}", stage, data);
}

// Two ranks divide the parameters, so that ranks 0, 2 and 4 hold the same shards, and ranks 1, 3 and 5.
TEST(WeightAudit, ComparesShardsThatHaveReplicas) {
  Config config = audited_config();
  config.bf16.enabled = true;
  config.zero.mics_shard_size = 2;
  config.zero.stage3_param_persistence_threshold = 0;
  for (const int stage : {1, 2, 3})
    for (const size_t which : {0u, 1u, 2u}) {
      config.zero.stage = stage;
      const auto change = [&](Engine& engine) { flip_low_bit(engine, "blocks.1.mlp.up.weight", which); };
      const int rank = holder_of(config, "blocks.1.mlp.up.weight");
      EXPECT_THAT(message_after(change, config, 6, 4 + rank),
                  HasSubstr(fmt::format("after step 3: rank {} holds different weights from ranks {}, {}, first in "
                                        "blocks.1.mlp.up.weight (all were equal after step 2)",
                                        4 + rank, rank, 2 + rank)))
          << "stage " << stage << ", tensor " << which;
    }
}

TEST(WeightAudit, OfTwoRanksNamesBoth) {
  EXPECT_THAT(message_after(flip_exponent, audited_config(), 2, 0, "blocks.0.mlp.up.weight"),
              HasSubstr("after step 3: ranks 0, 1 hold different weights and no majority says which is right"));
}

// Every tensor rank has the norms and updates its own copy, even if the weights are sharded over the data axis.
TEST(WeightAudit, ComparesWhatTheTensorAxisDoesNotSplit) {
  Config config = audited_config();
  config.parallel.tensor = 4;
  EXPECT_THAT(message_after(flip_exponent, config, 4, 1, "blocks.0.norm1.gain"),
              HasSubstr("rank 1 holds different weights from ranks 0, 2, 3"));
  config.zero.stage = 3;
  config.zero.stage3_param_persistence_threshold = 0;
  EXPECT_THAT(message_after(flip_exponent, config, 8, 2, "blocks.0.norm1.gain"),
              HasSubstr("ranks 2, 6 hold different weights from ranks 0, 1, 3, 4, 5, 7"));
}

// Rank 3 is data rank 1 and tensor rank 1. Its gain makes its gradients differ from those of rank 2, and so tensor ranks hold
// different copies of all earlier parameters, too. The ranks that differ in the gain itself say more.
TEST(WeightAudit, NamesTheDataRanksAndTheirWeightBeforeWhatTensorRanksShare) {
  Config config = audited_config();
  config.parallel.tensor = 2;
  EXPECT_THAT(message_after(flip_exponent, config, 4, 3, "blocks.1.norm1.gain"),
              HasSubstr("ranks 1, 3 hold different weights and no majority says which is right, first in blocks.1.norm1.gain"));
}

// The audit runs before a run is declared to have diverged: one rank's damaged weight is no fault of the training.
TEST(WeightAudit, HappensBeforeTheWeightsAreJudged) {
  Config config = audited_config();
  config.audit.weights_every = 100;
  const auto before_step = [](Engine& engine, int world_rank, int64_t step) {
    if (step != 2) return;
    if (world_rank == 2) change_weights(engine, "blocks.1.mlp.up.weight", [](uint32_t* bits) { bits[0] = 0x7f800000u; });
    Divergence(engine, {}, {}).check_weights();
  };
  try {
    run({.ranks = 3, .before_step = before_step, .config = config});
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::RanksDisagree);
    EXPECT_THAT(error.what(), HasSubstr("after step 2: rank 2 holds different weights from ranks 0, 1"));
  }
}

// At stage 0 a checkpoint consists of float32 master weights and moments, of which layers see 16 bits or nothing.
TEST(WeightAudit, ComparesMasterWeightsAndMomentsThatAreWholeOnEveryRank) {
  Config config = audited_config();
  config.bf16.enabled = true;
  for (const size_t which : {0u, 1u, 2u}) {
    const auto change = [&](Engine& engine) { flip_low_bit(engine, "blocks.1.mlp.up.weight", which); };
    EXPECT_THAT(message_after(change, config, 3, 2),
                HasSubstr("rank 2 holds different weights from ranks 0, 1, first in blocks.1.mlp.up.weight (all were equal"));
  }
  const auto moment = [](Engine& engine) { flip_low_bit(engine, "blocks.1.mlp.up.weight", 0); };
  EXPECT_THAT(message_after(moment, audited_config(), 3, 1), HasSubstr("rank 1 holds different weights from ranks 0, 2"));
}

// Each tensor rank keeps the shards of its own copy of a norm.
TEST(WeightAudit, ComparesMasterWeightsThatTheTensorAxisDoesNotSplit) {
  Config config = audited_config();
  config.bf16.enabled = true;
  config.parallel.tensor = 4;
  config.zero.stage = 1;
  const auto change = [&](Engine& engine) { flip_low_bit(engine, "blocks.0.norm1.gain", 0); };
  EXPECT_THAT(message_after(change, config, 4, 1), HasSubstr("rank 1 holds different weights from ranks 0, 2, 3"));
}

TEST(WeightAudit, NeverAccusesAHealthyOptimizer) {
  for (const auto& [name, type] : EnumNames<OptimizerType>::table)
    for (const int tensor : {1, 2}) {
      if (traits_of(type).whole_matrices && tensor > 1) continue;
      Config config = audited_config();
      config.optimizer.type = type;
      config.parallel.tensor = tensor;
      config.bf16.enabled = true;
      config.reproducible = Reproducible::Run;
      EXPECT_NO_THROW(run({.ranks = 4, .steps = 3, .config = config})) << name << ", tensor " << tensor;
    }
}

TEST(WeightAudit, HappensAtTheConfiguredInterval) {
  Config config = audited_config();
  config.audit.weights_every = 4;
  EXPECT_THAT(message_after(flip_exponent, config, 3, 1, "blocks.1.mlp.up.weight"),
              AllOf(HasSubstr("after step 4: rank 1 "), HasSubstr("(all were equal after step 0)")));
  config.audit.weights_every = 0;
  EXPECT_EQ(message_after(flip_exponent, config, 3, 1, "blocks.1.mlp.up.weight"), "nothing was noticed");
}

TEST(WeightAudit, NeverAccusesAHealthyRun) {
  for (const model::Type type : {model::Type::Gpt, model::Type::Llama})
    for (const int stage : {0, 1, 2, 3})
      for (const auto& [pipeline, tensor, ranks] : {std::array{1, 1, 3}, {1, 2, 4}, {2, 2, 8}, {2, 1, 4}}) {
        Config config = audited_config(type);
        config.zero.stage = stage;
        config.parallel.tensor = tensor;
        config.parallel.pipeline = pipeline;
        config.parallel.sequence_parallel = tensor > 1 && stage % 2 == 1;
        config.bf16.enabled = stage > 1;
        EXPECT_NO_THROW(run({.ranks = ranks, .steps = 3, .config = config}))
            << fmt::format("stage {}, pipeline {}, tensor {}, {} ranks", stage, pipeline, tensor, ranks);
      }
}

TEST(WeightAudit, ChangesNoBit) {
  Config config = tiny_config(model::Type::Gpt);
  config.audit.weights_every = 0;
  const Trace without = run({.ranks = 3, .config = config});
  config.audit.weights_every = 1;
  EXPECT_EQ(difference(without, run({.ranks = 3, .config = config})), "");
}

// ---- which ranks disagree

Mesh mesh_of(int pipeline, int tensor, int ranks) {
  ParallelConfig parallel;
  parallel.pipeline = pipeline;
  parallel.tensor = tensor;
  return Mesh(parallel, ranks);
}

TEST(FindDisagreement, AllEqualIsNone) {
  const std::vector<WeightDigest> digests(4, {"w", 7, 8, 9});
  EXPECT_FALSE(find_disagreement(mesh_of(1, 1, 4), 4, digests));
}

TEST(FindDisagreement, WithoutAMajorityNamesAllThatShouldBeEqual) {
  const auto found = find_disagreement(mesh_of(1, 1, 4), 4, std::vector<WeightDigest>{{"", 1}, {"", 2}, {"", 2}, {"", 1}});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->differing, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(found->agreeing, IsEmpty());
}

// Pipeline stages hold different parameters: ranks 0 and 1 are stage 0, ranks 2 and 3 stage 1.
TEST(FindDisagreement, ComparesNothingBetweenPipelineStages) {
  const Mesh mesh = mesh_of(2, 1, 4);
  EXPECT_FALSE(find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 1}, {"", 1}, {"", 2}, {"", 2}}));
  const auto found = find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 1}, {"", 1}, {"", 2}, {"", 3}});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->differing, ElementsAre(2, 3));
}

// Shards {0 1} {2 3}: ranks 0 and 2 hold the same shard.
TEST(FindDisagreement, ComparesTheReplicasOfAShard) {
  const Mesh mesh = mesh_of(1, 1, 4);
  EXPECT_FALSE(find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 7, 1}, {"", 7, 2}, {"", 7, 1}, {"", 7, 2}}));
  const auto found = find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 7, 1}, {"", 7, 2}, {"", 7, 1}, {"", 7, 3}});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->differing, ElementsAre(1, 3));
}

// data 2 x tensor 2: ranks 0 and 2 are tensor rank 0. Shards may be cut differently, so their sums are compared.
TEST(FindDisagreement, AddsUpShardsBeforeItComparesTensorRanks) {
  const Mesh mesh = mesh_of(1, 2, 4);
  EXPECT_FALSE(
      find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 0, 0, 10}, {"", 0, 0, 4}, {"", 0, 0, 5}, {"", 0, 0, 11}}));
  const auto found =
      find_disagreement(mesh, 2, std::vector<WeightDigest>{{"", 0, 0, 10}, {"", 0, 0, 4}, {"", 0, 0, 5}, {"", 0, 0, 12}});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->differing, ElementsAre(0, 1, 2, 3));
}

// Of four ranks, two have the first half of the experts: 0 and 2.
TEST(WeightAudit, ComparesRanksWithTheSameExperts) {
  Config config = audited_config(model::Type::Llama);
  config.model.experts = {.count = 4, .per_token = 2, .feed_forward_size = 16};
  config.parallel.expert = 2;
  run({.ranks = 4, .steps = 2, .config = config});  // throws if they disagree
  const std::string experts = "blocks.0.mlp.experts.down.weight";
  EXPECT_THAT(message_after(flip_exponent, config, 4, 2, experts),
              HasSubstr("ranks 0, 2 hold different weights and no majority says which is right, first in " + experts));
}

}  // namespace
}  // namespace trivet::test
