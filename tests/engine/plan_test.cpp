#include "engine/make_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "core/error.h"
#include "engine/engine.h"
#include "model/attention.h"
#include "model/count_flops.h"
#include "model/mlp.h"
#include "tests/engine/small_plan.h"

namespace trivet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// The peak of each category on each rank after two steps and an evaluation.
std::vector<MemoryBytes> measured(const Config& config, int ranks) {
  std::vector<MemoryBytes> bytes(ranks);
  comm::run_threads(ranks, [&](comm::World& world) {
    Engine engine(plan_of(config, ranks), model_of(config), world);
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

struct Variant {
  int ranks, stage;
  bool bf16;
  Recompute recompute;
  bool overlap, layout;
  OptimizerType optimizer;
};

TEST(Plan, PredictsTheMemoryOfEveryRankToTheByte) {
  for (const Variant& v : {Variant{1, 0, false, Recompute::None, false, false, OptimizerType::AdamW},
                           {4, 0, true, Recompute::Selective, false, false, OptimizerType::AdamW},
                           {4, 1, true, Recompute::Full, false, false, OptimizerType::AdamW},
                           {3, 2, true, Recompute::None, true, false, OptimizerType::Lion},
                           {4, 3, true, Recompute::None, true, false, OptimizerType::AdamW},
                           {4, 3, false, Recompute::Full, false, true, OptimizerType::Lamb},
                           {2, 2, true, Recompute::None, true, true, OptimizerType::Muon},
                           {3, 3, true, Recompute::Selective, true, true, OptimizerType::Sgd}}) {
    Config config = small_config();
    config.zero.stage = v.stage;
    config.bf16.enabled = v.bf16;
    config.recompute = v.recompute;
    config.zero.overlap_comm = v.overlap;
    config.reproducible = v.layout ? Reproducible::Layout : Reproducible::Run;
    config.optimizer.type = v.optimizer;
    const MemoryBytes planned = plan_of(config, v.ranks).ranks[0].memory;
    for (const MemoryBytes& bytes : measured(config, v.ranks))
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
        EXPECT_EQ(bytes[category], planned[category]) << name << ", " << v.ranks << " ranks, stage " << v.stage;
  }
}

TEST(Plan, GradientsOfABf16ModelAreSummedInFloat32UnlessTheConfigSaysOtherwise) {
  Config config = small_config();
  const auto bytes_of_gradients = [&] { return plan_of(config, 1).ranks[0].memory[MemoryCategory::Gradients]; };
  const int64_t float32 = bytes_of_gradients();
  config.bf16.enabled = true;
  EXPECT_EQ(bytes_of_gradients(), float32);
  config.grad_accum_dtype = DType::BFloat16;
  EXPECT_EQ(bytes_of_gradients(), float32 / 2);
  config.grad_accum_dtype.reset();
  config.bf16.enabled = false, config.fp16.enabled = true;
  EXPECT_EQ(bytes_of_gradients(), float32 / 2);
}

// For the config's own window the plan states what the groups sent in the rehearsal.
TEST(Plan, StatesWhatEachWindowOfWholeWeightsGathers) {
  Config config = small_config();
  config.zero.stage = 3;
  config.zero.stage3_param_persistence_threshold = 0;
  std::vector<int64_t> sent;
  for (const auto& [name, release] : EnumNames<pipeline::UnshardRelease>::table) {
    config.zero.stage3_release = release;
    const Plan plan = plan_of(config, 4);
    sent.push_back(plan.ranks[0].traffic_of("gather").bytes_sent);
    const auto mebibytes = static_cast<double>(sent.back()) / (1 << 20);
    EXPECT_THAT(to_text(plan),
                testing::ContainsRegex(fmt::format("  {} +gathers +{:.2f} MiB per step.*<- this config", name, mebibytes)));
    EXPECT_THAT(to_json(plan), HasSubstr(fmt::format("\"gather_bytes\": {}", sent.back())));
  }
  EXPECT_EQ(sent[0], sent[1]);      // distance 0 is each use
  EXPECT_GT(sent[1], 2 * sent[2]);  // forward and backward of each block; the tied table in the head, too
  EXPECT_EQ(sent[2], 3 * sent[3]);  // 3 microbatches
  config.zero.stage3_param_persistence_threshold = 1 << 20;
  EXPECT_THAT(to_text(plan_of(config, 4)),
              HasSubstr("gathered weights: none, because no parameter has more than the 1048576 "));
  config.zero.stage = 2;
  EXPECT_THAT(to_text(plan_of(config, 4)), testing::Not(HasSubstr("gathered weights")));
}

// Ranks that share experts gather them from fewer shards, or from none.
TEST(Plan, StatesWhatIsGatheredOfExpertsThatRanksShare) {
  for (const int64_t expert : {1, 2, 4}) {
    Config config = small_config();
    config.model.type = model::Type::Llama;
    config.model.experts = {.count = 4, .per_token = 2, .feed_forward_size = 16};
    config.zero.stage = 3;
    config.zero.stage3_param_persistence_threshold = 0;
    config.parallel.expert = expert;
    const Plan plan = plan_of(config, 4);
    EXPECT_THAT(to_json(plan), HasSubstr(fmt::format("\"gather_bytes\": {}", plan.ranks[0].traffic_of("gather").bytes_sent)));
  }
}

struct Axes {
  int pipeline, data, tensor, stage;
  ScheduleKind schedule;
  bool layout;
  Recompute recompute;
  bool bf16 = false, sequence_parallel = false, partition = false;
};

TEST(Plan, PredictsTheMemoryOfEveryStageToTheByte) {
  constexpr Recompute kNone = Recompute::None, kFull = Recompute::Full, kSelective = Recompute::Selective;
  for (const Axes& v : {Axes{2, 1, 1, 0, ScheduleKind::OneForwardOneBackward, false, kNone},
                        {2, 2, 1, 3, ScheduleKind::ZeroBubbleH1, false, kSelective},
                        {2, 2, 1, 2, ScheduleKind::Interleaved, true, kFull},
                        {2, 1, 1, 1, ScheduleKind::ZeroBubbleV, false, kNone},
                        {4, 1, 1, 0, ScheduleKind::GPipe, true, kNone},
                        {1, 2, 2, 2, ScheduleKind::OneForwardOneBackward, false, kSelective},
                        {2, 2, 2, 3, ScheduleKind::ZeroBubble2p, false, kFull},
                        {2, 1, 2, 1, ScheduleKind::OneForwardOneBackward, true, kFull, true},
                        {1, 1, 4, 0, ScheduleKind::OneForwardOneBackward, true, kNone},
                        {2, 1, 2, 2, ScheduleKind::ZeroBubbleH1, false, kSelective, true, true},
                        {1, 2, 4, 3, ScheduleKind::OneForwardOneBackward, false, kFull, false, true},
                        {2, 1, 2, 0, ScheduleKind::ZeroBubbleV, false, kFull, false, false, true},
                        {1, 1, 4, 0, ScheduleKind::GPipe, true, kFull, true, false, true}}) {
    Config config = small_config();
    config.parallel.pipeline = v.pipeline;
    config.parallel.tensor = v.tensor;
    config.parallel.sequence_parallel = v.sequence_parallel;
    config.bf16.enabled = v.bf16;
    config.pipeline.schedule = v.schedule;
    config.zero.stage = v.stage;
    config.zero.overlap_comm = v.stage == 3;
    config.recompute = v.recompute;
    config.partition_activations = v.partition;
    config.reproducible = v.layout ? Reproducible::Layout : Reproducible::Run;
    const int ranks = v.pipeline * v.data * v.tensor;
    const Plan plan = plan_of(config, ranks);
    const auto bytes = measured(config, ranks);
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
        EXPECT_EQ(bytes[rank][category], plan.rank(rank).memory[category])
            << name << ", rank " << rank << " of " << to_string(plan.mesh) << ", stage " << v.stage;
  }
}

// Each microbatch crosses a boundary as B S H activations forward and as many gradients back; interleaved schedules have more
// boundaries. A block's four sums over the tensor axis move 2 (t - 1) / t of B S H each (docs/communication.md).
TEST(Plan, TrafficOfStagesAndTensorRanksFollowsTheFormula) {
  Config config = small_config();
  const double tensor_bytes = 1.0 * 32 * 64 * 4, microbatches = 12;  // B S H float32
  config.parallel.pipeline = 2;
  const Plan stages = plan_of(config, 2);
  for (const RankPlan& rank : stages.ranks)
    EXPECT_DOUBLE_EQ(static_cast<double>(rank.traffic_of("pipeline").bytes_sent), microbatches * tensor_bytes)
        << rank.coordinates[Axis::Pipeline];
  config.pipeline.schedule = ScheduleKind::Interleaved;  // boundaries 0|1, 1|2, 2|3
  const Plan chunks = plan_of(config, 2);
  for (const RankPlan& rank : chunks.ranks)  // rank 0 sends forward over two of them and backward over one; rank 1 the reverse
    EXPECT_DOUBLE_EQ(static_cast<double>(rank.traffic_of("pipeline").bytes_sent), microbatches * 3 * tensor_bytes)
        << rank.coordinates[Axis::Pipeline];

  config.parallel.pipeline = 1;
  config.pipeline.schedule = ScheduleKind::OneForwardOneBackward;
  for (const int t : {2, 4})
    for (const int64_t layers : {3, 4}) {
      config.parallel.tensor = t;
      config.model.layers = layers;
      const double share = 2.0 * (t - 1) / t;
      // In addition to the blocks there are the embedding's sum, the head's dh, and 3 float32 per token for the loss.
      const double expected = microbatches * share * ((4 * static_cast<double>(layers) + 2) * tensor_bytes + 3 * 32 * 4);
      EXPECT_DOUBLE_EQ(static_cast<double>(plan_of(config, t).ranks[0].traffic_of("tensor").bytes_sent), expected) << t;
    }
}

// Sequence parallelism moves (t - 1) / t of B S H ten times per block (docs/communication.md), twice for the embedding and
// twice for the head. Gradients of parameters that are not split are summed once per step.
TEST(Plan, TrafficOfSequenceParallelismFollowsTheFormula) {
  Config config = small_config();
  config.parallel.sequence_parallel = true;
  config.model.hidden_size = 256;  // vectors are padded to 256 elements
  const double tensor_bytes = 1.0 * 32 * 256 * 4, microbatches = 12;
  for (const int t : {2, 4})
    for (const int64_t layers : {3, 4}) {
      config.parallel.tensor = t;
      config.model.layers = layers;
      // Norms and biases after rows, the norm of the head, positions.
      const double unsplit = static_cast<double>(layers * 6 * 256 + 2 * 256 + 32 * 256);
      const double share = 1.0 * (t - 1) / t, loss = 2 * 3 * 32 * 4;
      const double expected =
          share * (microbatches * ((10 * static_cast<double>(layers) + 4) * tensor_bytes + loss) + 2 * unsplit * 4);
      EXPECT_DOUBLE_EQ(static_cast<double>(plan_of(config, t).ranks[0].traffic_of("tensor").bytes_sent), expected) << t;
    }
}

// Partial sums are float32 in layout mode.
TEST(Plan, TrafficOfTensorRanksInLayoutModeIsOfFloat32) {
  Config config = small_config();
  config.parallel.tensor = 2;
  config.bf16.enabled = true;
  const double of_bf16 = static_cast<double>(plan_of(config, 2).ranks[0].traffic_of("tensor").bytes_sent);
  config.reproducible = Reproducible::Layout;
  const double layers = 3, elements = 32 * 64, microbatches = 12;
  // The embedding's sum is exact and stays bfloat16.
  EXPECT_DOUBLE_EQ(static_cast<double>(plan_of(config, 2).ranks[0].traffic_of("tensor").bytes_sent),
                   of_bf16 + microbatches * (4 * layers + 1) * elements * 2);
}

// Adam in bf16, gradients included, takes 16 bytes per parameter, sharded as the stage says (zero/stage.h). The rest is
// padding: every parameter starts at a multiple of 256 elements, and a group ends at a multiple of 256 x ranks.
TEST(Plan, ModelStateFollowsTheFormulaOfItsStage) {
  Config config = small_config();
  config.model.hidden_size = 256;
  config.bf16.enabled = true;
  config.grad_accum_dtype = DType::BFloat16;
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.tied_embedding = false;  // a tied table has a second accumulator in run mode
  const int ranks = 4;
  for (int stage : {0, 1, 2, 3}) {
    config.zero.stage = stage;
    const Plan plan = plan_of(config, ranks);
    const double n = ranks, psi = static_cast<double>(plan.parameters);
    const double parameters = 2 / (stage >= 3 ? n : 1), gradients = 2 / (stage >= 2 ? n : 1),
                 optimizer = 12 / (stage >= 1 ? n : 1);
    EXPECT_NEAR(static_cast<double>(plan.ranks[0].memory[MemoryCategory::Parameters]) / psi, parameters, 0.01 * parameters)
        << stage;
    EXPECT_NEAR(static_cast<double>(plan.ranks[0].memory[MemoryCategory::Gradients]) / psi, gradients, 0.01 * gradients)
        << stage;
    EXPECT_NEAR(static_cast<double>(plan.ranks[0].memory[MemoryCategory::Optimizer]) / psi, optimizer, 0.01 * optimizer)
        << stage;
  }
}

int64_t padded_elements(const Plan& plan) {
  int64_t elements = 0;
  for (const auto& block : plan.ranks[0].layout.blocks)
    for (const auto& group : block.groups) elements += group.whole_elements;
  return elements;
}

Config without_persistence(int stage) {
  Config config = small_config();
  config.zero.stage = stage;
  config.zero.stage3_param_persistence_threshold = 0;
  config.model.tied_embedding = false;
  return config;
}

// 8 ranks, shards on 4 of them, two microbatches: each microbatch sends 3/4 of the gradients inside the shards, and the step
// one all-reduce of a quarter of them between 2 replicas.
TEST(Plan, ReplicasOfShardsExchangeTheirGradientsOnceAStep) {
  for (const int stage : {1, 2, 3}) {
    Config config = without_persistence(stage);
    config.zero.mics_shard_size = 4;
    config.batch.train_batch_size = 16;
    const Plan plan = plan_of(config, 8);
    ASSERT_EQ(plan.batch.gradient_accumulation_steps, 2);
    const int64_t bytes = padded_elements(plan) * 4, reductions = stage == 1 ? 1 : 2;
    EXPECT_EQ(plan.ranks[0].traffic_of("reduce").bytes_sent, reductions * bytes * 3 / 4) << stage;
    EXPECT_EQ(plan.ranks[0].traffic_of("replicas").bytes_sent, bytes / 4) << stage;  // 2 x (2 - 1) / 2 of a shard
    config.zero.mics_shard_size = -1;
    const Plan all = plan_of(config, 8);
    EXPECT_NEAR(static_cast<double>(plan.ranks[0].memory[MemoryCategory::Optimizer]),
                2.0 * static_cast<double>(all.ranks[0].memory[MemoryCategory::Optimizer]), 0.05 * static_cast<double>(bytes));
  }
}

// 8 ranks divide the weights; from the first gather on, pairs of them keep a second copy. Of two microbatches, the forward and
// the backward of each gather every block, except the head, whose forward and backward are one.
TEST(Plan, OnlyTheFirstGatherOfAStepIsOverAllRanksIfPairsKeepASecondCopy) {
  Config config = without_persistence(3);
  config.zero.stage3_release = pipeline::UnshardRelease::Use;
  config.batch.train_batch_size = 16;
  const Plan plain = plan_of(config, 8);
  config.zero.zero_hpz_partition_size = 2;
  const Plan plan = plan_of(config, 8);
  const int64_t bytes = padded_elements(plan) * 4, head = plan.ranks[0].layout.blocks.back().groups[0].whole_elements * 4;
  EXPECT_EQ(plain.ranks[0].traffic_of("gather").bytes_sent, (4 * bytes - 2 * head) * 7 / 8);
  EXPECT_EQ(plan.ranks[0].traffic_of("gather").bytes_sent, bytes * 7 / 8);
  EXPECT_EQ(plan.ranks[0].traffic_of("secondary").bytes_sent, (3 * bytes - 2 * head) / 2);
  EXPECT_EQ(plan.ranks[0].memory[MemoryCategory::Parameters] - plain.ranks[0].memory[MemoryCategory::Parameters], bytes / 2);
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["stage3_release"]["use"]["gather_bytes"], bytes * 7 / 8 + (3 * bytes - 2 * head) / 2);
  EXPECT_THAT(to_text(plan), HasSubstr("gathers   after the first of a step are from a second copy on 2 ranks (hpZ)\n"));
}

// If each block is gathered once, a second copy would never be read.
TEST(Plan, HasNoSecondCopyOfWeightsThatAreGatheredOnce) {
  Config config = without_persistence(3);
  config.zero.stage3_release = pipeline::UnshardRelease::Microbatch;
  config.batch.train_batch_size = 8;
  const Plan plain = plan_of(config, 8);
  config.zero.zero_hpz_partition_size = 2;
  const Plan plan = plan_of(config, 8);
  EXPECT_EQ(plan.ranks[0].memory[MemoryCategory::Parameters], plain.ranks[0].memory[MemoryCategory::Parameters]);
  EXPECT_EQ(plan.ranks[0].traffic_of("secondary").bytes_sent, 0);
  EXPECT_THAT(to_text(plan), HasSubstr("gathers   happen once a step, so zero_hpz_partition_size changes nothing\n"));
}

TEST(Plan, SaysWhichKeysOfShardingChangeNothing) {
  Config config = without_persistence(3);
  config.batch.train_batch_size = 16;
  config.zero.mics_shard_size = 8;
  EXPECT_THAT(to_text(plan_of(config, 8)),
              HasSubstr("shards    are on all 8 ranks that hold the same parameters, so mics_shard_size 8 changes nothing\n"));
  config.zero.mics_shard_size = 1;
  config.zero.zero_quantized_gradients = true;
  EXPECT_THAT(to_text(plan_of(config, 8)),
              HasSubstr("gradients are not divided, so zero_quantized_gradients changes nothing\n"));
  config.zero.mics_shard_size = 4;
  EXPECT_THAT(to_text(plan_of(config, 8)), HasSubstr("gradients are summed in 4 bits (qgZ), those of replicas exactly\n"));
  config.zero = without_persistence(3).zero;
  config.zero.zero_quantized_weights = true;
  EXPECT_THAT(to_text(plan_of(config, 1)),
              HasSubstr("weights   are rounded to 8 bits before they are used, as on several ranks (qwZ)\n"));
}

// 8 ranks in runs of 2, one microbatch. Weights of 8 bits and gradients of 4, each with a scale of 4 bytes for 256 elements.
TEST(Plan, QuantizedMessagesHaveTheBytesOfTheirBits) {
  Config config = without_persistence(3);
  config.zero.stage3_release = pipeline::UnshardRelease::Use;
  config.batch.train_batch_size = 8;
  config.zero.zero_hpz_partition_size = 2;
  config.zero.zero_quantized_weights = config.zero.zero_quantized_gradients = true;
  const Plan plan = plan_of(config, 8);
  const int64_t elements = padded_elements(plan), head = plan.ranks[0].layout.blocks.back().groups[0].whole_elements;
  EXPECT_EQ(plan.ranks[0].traffic_of("gather").bytes_sent, elements / 256 * 260 * 7 / 8);
  EXPECT_EQ(plan.ranks[0].traffic_of("secondary").bytes_sent, (elements - head) * 4 / 2);
  EXPECT_EQ(plan.ranks[0].traffic_of("reduce").bytes_sent, 0);
  EXPECT_EQ(plan.ranks[0].traffic_of("near").bytes_sent, elements / 256 * 132 / 2);
  EXPECT_EQ(plan.ranks[0].traffic_of("far").bytes_sent, elements / 2 / 256 * 132 * 3 / 4);
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["stage3_release"]["use"]["gather_bytes"], elements / 256 * 260 * 7 / 8 + (elements - head) * 4 / 2);
  EXPECT_THAT(to_text(plan), AllOf(HasSubstr("gathers   send 8 bits of each weight (qwZ)\n"),
                                   HasSubstr("gradients are summed in 4 bits, first over 2 ranks (qgZ)\n")));
  config.zero.zero_hpz_partition_size = 1;
  EXPECT_EQ(plan_of(config, 8).ranks[0].traffic_of("reduce").bytes_sent, elements / 256 * 132 * 7 / 8);
}

TEST(Plan, RefusesShardSizesThatDoNotDivideTheRanks) {
  Config config = small_config();
  config.zero.stage = 3;
  config.batch.train_batch_size = 24;
  config.zero.mics_shard_size = 4;
  EXPECT_THAT([&] { plan_of(config, 6); },
              ThrowsMessage<ConfigError>(HasSubstr("zero_optimization.mics_shard_size: 4 does not divide the 6 ranks that hold "
                                                   "the same parameters; use a divisor, or -1")));
  config.zero.mics_shard_size = -1;
  config.zero.zero_hpz_partition_size = 4;
  EXPECT_THAT([&] { plan_of(config, 6); },
              ThrowsMessage<ConfigError>(HasSubstr("zero_optimization.zero_hpz_partition_size: 4 does not divide the 6 ranks "
                                                   "that divide the weights; use a divisor, or 1")));
}

TEST(Plan, ShowsTheProgramOfARank) {
  Config config = small_config();
  config.model.layers = 1;
  config.zero.stage = 3;
  config.batch.train_batch_size = 2;
  config.zero.stage3_prefetch_bucket_size = 0;
  EXPECT_EQ(to_string(plan_of(config, 2).ranks[0].programs.train),
            "0.0UNSHARD 0.0F0 0.0RESHARD 0.1UNSHARD 0.1F0 0.1RESHARD 0.0UNSHARD 0.2L0 0.0RESHARD 0.2REDUCE 0.1UNSHARD 0.1B0 "
            "0.1RESHARD "
            "0.1REDUCE 0.0UNSHARD 0.0B0 0.0RESHARD 0.0REDUCE 0.2TIE 0SUM_LOSS");
  EXPECT_THAT(to_text(plan_of(config, 2)), HasSubstr("mesh      data 2, 2 ranks"));
  EXPECT_THAT(to_json(plan_of(config, 2)), HasSubstr("\"memory_bytes\""));
}

// DeepSpeed's ALST (Bekman et al. 2025, arXiv:2506.13996) publishes how many tokens of a sequence Llama-8B was trained with on
// H100 of 80 GB, with optimizer states and inputs of blocks in host memory.
TEST(Plan, FitsTheLongSequencesThatWerePublished) {
  Config config;
  config.source = "llama.json";
  config.device = DeviceChoice::Cuda;
  config.model = {.type = model::Type::Llama,
                  .layers = 32,
                  .hidden_size = 4096,
                  .heads = 32,
                  .key_value_heads = 8,
                  .vocabulary_size = 128256};
  config.model.feed_forward_size = 14336;
  config.model.tied_embedding = false;
  config.bf16.enabled = true;
  config.grad_accum_dtype = DType::BFloat16;
  config.zero.stage = 3;
  config.zero.offload_optimizer.device = OffloadDevice::Cpu;
  config.recompute = Recompute::Full;
  config.cpu_checkpointing = true;
  config.mlp_slice_tokens = 4096;
  config.batch.train_batch_size = 1;
  constexpr int64_t kH100 = int64_t{81559} << 20;  // as nvidia-smi shows it
  for (const auto& [ranks, tokens] : {std::pair<int, int64_t>{1, 500'000}, {8, 3'700'000}, {32, 15'000'000}}) {
    config.parallel.context = ranks;
    config.model.sequence_length = tokens;
    const Plan plan = make_plan(config, model::build(config.model), ranks);
    EXPECT_LE(plan.heaviest().memory.total(), kH100) << ranks << " ranks";
    // Nothing that a rank has of each token is left out: 31 inputs of blocks on the host, and on the device at least one and
    // qkv.
    const int64_t own = tokens / ranks * 4096 * 2;
    EXPECT_EQ(plan.heaviest().offloaded_bytes, 31 * own);
    EXPECT_GE(plan.heaviest().memory[MemoryCategory::Activations], own + own * 3 / 2);
  }
}

// Five tensors of a head of the whole sequence, three of a tile of 64 tokens, two tiles of scores and two statistics
// (kernels/cpu/attention_scratch.h), whichever part of the sequence a rank has.
TEST(Plan, SaysWhatAttentionKeepsInEachThreadOfACpu) {
  Config config = small_config();
  config.model.sequence_length = 128;
  config.model.hidden_size = 64;
  config.model.heads = 4;
  config.batch.train_batch_size = 1;
  config.parallel.context = 2;
  const int64_t bytes = 4 * (5 * 128 * 16 + 3 * 64 * 16 + 2 * 64 * 64 + 2 * 128);
  const Plan plan = plan_of(config, 2);
  EXPECT_EQ(nlohmann::json::parse(to_json(plan))["thread_scratch_bytes"], bytes);
  EXPECT_THAT(to_text(plan), HasSubstr(fmt::format("attention    {:>10.2f} MiB more in each kernel thread, at most\n",
                                                   static_cast<double>(bytes) / (1 << 20))));
}

TEST(Plan, ShowsStagesScheduleAndBubble) {
  Config config = small_config();
  config.parallel.pipeline = 4;
  config.model.layers = 6;
  config.batch.train_batch_size = 8;
  const std::string text = to_text(plan_of(config, 4));
  EXPECT_THAT(text, HasSubstr("stages    0 on rank 0: embedding .. blocks."));
  EXPECT_THAT(text, HasSubstr("schedule  1f1b, 8 microbatches: bubble 27.3 %"));  // 3 of 11 slots
  EXPECT_THAT(text, HasSubstr("at most 4 activations on rank 0"));
  config.pipeline.schedule = ScheduleKind::ZeroBubbleH1;
  EXPECT_THAT(to_text(plan_of(config, 4)), HasSubstr("bubble 11.1 %"));  // 27 instead of 24
}

TEST(Plan, RefusesByNameWhatThisVersionCannotDo) {
  const auto refused = [](auto&& change, const std::string& message) {
    Config config = small_config();
    change(config);
    EXPECT_THAT([&] { plan_of(config, 4); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused([](Config& c) { c.parallel.expert = 2; },
          "parallel.expert: 2 is not accepted: the model has no experts (model.experts.count); use 1");
  const auto share_experts = [](Config& c) {
    c.model.type = model::Type::Llama;
    c.model.experts.count = 4;
    c.parallel.expert = 2;
  };
  refused(
      [&](Config& c) {
        share_experts(c);
        c.parallel.pipeline = 2;
        c.pipeline.schedule = ScheduleKind::ZeroBubbleH1;
      },
      "parallel.expert: 2 is not accepted with a schedule in which gradients of weights come later than those of inputs");
  refused([](Config& c) { c.optimizer.type = OptimizerType::Muon, c.parallel.tensor = 2; },
          "small.json: parallel.tensor: 2 is not accepted with optimizer Muon, which needs whole matrices; use 1");
  refused([](Config& c) { c.batch = {.train_batch_size = 10, .micro_batch_size = 3}; }, "train_batch_size");
  refused([](Config& c) { c.parallel.tensor = 2, c.optimizer.type = OptimizerType::Muon; },
          "parallel.tensor: 2 is not accepted with optimizer Muon, which needs whole matrices; use 1");
}

TEST(Plan, SaysWhetherAStepIsOneCudaGraph) {
  const auto text = [](int ranks, auto&& change) {
    Config config = small_config();
    config.device = DeviceChoice::Cuda;
    change(config);
    return to_text(plan_of(config, ranks));
  };
  EXPECT_THAT(text(1, [](Config&) {}), HasSubstr("launches  a step is launched as one CUDA graph\n"));
  EXPECT_THAT(text(1, [](Config& c) { c.cuda_graph = CudaGraph::Off; }), HasSubstr("one by one: cuda_graph \"off\"\n"));
  EXPECT_THAT(text(2, [](Config&) {}), HasSubstr("one by one: 2 ranks, whose communication"));
  EXPECT_THAT(text(1, [](Config& c) { c.zero.stage = 1, c.zero.offload_optimizer.device = OffloadDevice::Cpu; }),
              HasSubstr("one by one: zero_optimization.offload_optimizer.device \"cpu\", whose updates the host makes\n"));
  EXPECT_THAT(text(1,
                   [](Config& c) {
                     c.model.token_drop = {
                         .enabled = true, .blocks = {0}, .min_tokens = 4, .max_tokens = 8, .steps = 1, .multiple = 4};
                   }),
              HasSubstr("one by one: random_ltd, which changes the number of tokens from step to step\n"));
  EXPECT_THAT(text(1, [](Config& c) { c.device = DeviceChoice::Cpu, c.cuda_graph = CudaGraph::On; }),
              Not(HasSubstr("launches")));
  EXPECT_THAT([&] { text(2, [](Config& c) { c.cuda_graph = CudaGraph::On; }); },
              ThrowsMessage<ConfigError>(HasSubstr("cuda_graph: \"on\" is not accepted with 2 ranks, whose communication this "
                                                   "version does not capture; use \"auto\" or \"off\"")));
}

TEST(Plan, AStepsOperationsAreThoseOfAllTokensOfTheGlobalBatch) {
  const Config config = small_config();
  EXPECT_DOUBLE_EQ(plan_of(config, 4).model_flops_per_step, model::flops_per_sample(model_of(config)) * 12);
}

// The embedding has 66,048 parameters, each block 49,984, the head 128, and 64,000 more if it has a table of its own.
TEST(Plan, ATiedWeightIsWeighedWhereItIsOwned) {
  Config config = small_config();
  config.model.layers = 2;
  config.parallel.pipeline = 2;
  config.pipeline.partition = pipeline::PartitionMethod::Parameters;
  const auto first_blocks = [&] {
    return make_plan(config, model::build(model::with_vocabulary(config.model, 1000)), 2).stages.first_blocks;
  };
  EXPECT_EQ(first_blocks(), (std::vector<int>{0, 1, 4}));
  config.model.tied_embedding = false;
  EXPECT_EQ(first_blocks(), (std::vector<int>{0, 2, 4}));
}

TEST(Plan, TheHeaviestRankNeedsMostMemory) {
  Config config = small_config();
  config.parallel.pipeline = 3;
  const Plan plan = plan_of(config, 3);
  int64_t most = 0, least = plan.ranks[0].memory.total();
  for (const RankPlan& rank : plan.ranks)
    most = std::max(most, rank.memory.total()), least = std::min(least, rank.memory.total());
  ASSERT_LT(least, most);
  EXPECT_EQ(plan.heaviest().memory.total(), most);
}

// Saving while training continues first copies the float32 weights and two moments.
TEST(Plan, CountsWhatSavingCopies) {
  Config config = small_config();
  const Plan without = plan_of(config, 1);
  config.checkpoint.directory = "checkpoints";
  const Plan with = plan_of(config, 1);
  const int64_t copies = with.ranks[0].memory[MemoryCategory::Buffers] - without.ranks[0].memory[MemoryCategory::Buffers];
  EXPECT_GE(copies, 12 * with.parameters);
  EXPECT_LE(copies, 12 * with.parameters + 100 * 64);  // each tensor is aligned
}

// The block has a matrix of 1,600 elements and a gain of 7, which persists.
TEST(BlockParameters, OfWeightsThatPersistNothingIsGathered) {
  const std::vector<ParameterSpec> specs{{.name = "weight", .shape = {40, 40}}, {.name = "gain", .shape = {7}}};
  const zero::ShardLayout layout = zero::make_shard_layout(
      {{"block", specs}}, {.shards = zero::ShardCounts(2), .persistence_threshold = 100, .persistence_limit = 1000});
  const auto [weight, gain] = std::pair{layout.blocks[0].groups[0].whole_elements, layout.blocks[0].groups[1].whole_elements};
  EXPECT_EQ(block_parameters(layout, 3).sharded_elements, (std::vector<int64_t>{weight}));
  EXPECT_EQ(block_parameters(layout, 3).gradient_elements, (std::vector<int64_t>{weight + gain}));
  EXPECT_EQ(block_parameters(layout, 2).sharded_elements, (std::vector<int64_t>{0}));
}

TEST(Plan, RefusesMoreMicrobatchesThanItCanLayOut) {
  Config config = small_config();
  config.batch = {.micro_batch_size = 1, .gradient_accumulation_steps = kMaxMicrobatches + 1};
  EXPECT_THAT([&] { plan_of(config, 1); },
              ThrowsMessage<ConfigError>(HasSubstr("gradient_accumulation_steps: 65537 is more than 65536")));
}

// Mixes a token with the one before it, which another rank may hold.
class Mixing final : public model::Mlp {
 public:
  Mixing() : Mlp({.hidden = 64, .feed_forward = 64}) {}
  bool allows_sequence_parallelism() const override { return false; }
  bool allows_context_parallelism() const override { return false; }
};

// A rank packs T / c tokens of N + 2 G heads before the core and of N after it, and sends (c - 1) / c of that; backward is the
// same in reverse. Neighbours that share a key/value head get a copy each.
TEST(Plan, ContextRanksSendTheirHeadsTwiceInEachDirection) {
  Config config = small_config();
  config.model.type = model::Type::Llama;
  config.model.heads = 8;
  for (const auto& [ranks, keys] : {std::pair{2, 8}, {2, 2}, {4, 8}, {4, 2}, {8, 2}}) {
    config.model.key_value_heads = keys;
    config.parallel.context = ranks;
    const Plan plan = plan_of(config, ranks);
    const model::Description& model = config.model;
    const int64_t copied_keys = std::max(keys, ranks), size = model.hidden_size / model.heads;
    const int64_t tokens = plan.batch.micro_batch_size * model.sequence_length / ranks;
    const int64_t bytes = tokens * (2 * model.heads + 2 * copied_keys) * size * 4 * (ranks - 1) / ranks;
    EXPECT_EQ(plan.ranks[0].traffic_of("context").bytes_sent, 2 * bytes * model.layers * plan.batch.gradient_accumulation_steps)
        << ranks << " ranks, " << keys << " key/value heads";
  }
}

// To each other rank a rank sends keys and values of its tokens forward; backward also queries, dout, out and their statistics.
TEST(Plan, ContextRanksThatGatherKeysSendThemToEachOther) {
  Config config = small_config();
  config.model.type = model::Type::Llama;
  config.model.heads = 8;
  config.parallel.context_kind = ContextKind::Gather;
  for (const auto& [ranks, keys] : {std::pair{2, 8}, {4, 2}}) {
    config.model.key_value_heads = keys;
    config.parallel.context = ranks;
    const Plan plan = plan_of(config, ranks);
    const model::Description& model = config.model;
    const int64_t size = model.hidden_size / model.heads;
    const int64_t tokens = plan.batch.micro_batch_size * model.sequence_length / ranks;
    const int64_t elements = tokens * ((4 * keys + 3 * model.heads) * size + model.heads);
    EXPECT_EQ(plan.ranks[0].traffic_of("context").bytes_sent,
              4 * elements * (ranks - 1) * model.layers * plan.batch.gradient_accumulation_steps);
    EXPECT_THAT(to_text(plan), HasSubstr("context ranks gather keys and values; each has two chunks"));
  }
}

// Two neighbours send each other half of the heads of their tokens. Runs hand on keys and values of the tokens of both, of half
// of the heads, twice, and once more than there are other runs the gradients of them.
TEST(Plan, RunsOfContextRanksExchangeHeadsAndHandKeysOn) {
  Config config = small_config();
  config.model.type = model::Type::Llama;
  config.model.heads = 8;
  config.parallel.context_kind = ContextKind::UlyssesRing;
  config.parallel.context_ulysses = 2;
  for (const auto& [ranks, keys] : {std::pair{4, 8}, {8, 2}, {8, 1}}) {
    config.model.key_value_heads = keys;
    config.parallel.context = ranks;
    const Plan plan = plan_of(config, ranks);
    const model::Description& model = config.model;
    const int64_t size = model.hidden_size / model.heads, copied_keys = std::max(keys, 2), runs = ranks / 2;
    const int64_t tokens = plan.batch.micro_batch_size * model.sequence_length / ranks;
    const int64_t exchanged = tokens * (2 * model.heads + 2 * copied_keys) * size / 2;
    const int64_t of_a_rank = tokens * 2 * copied_keys * size;
    const int64_t elements = 2 * exchanged + 2 * of_a_rank * (runs - 1) + of_a_rank * runs;
    EXPECT_EQ(plan.ranks[0].traffic_of("context").bytes_sent,
              4 * elements * model.layers * plan.batch.gradient_accumulation_steps)
        << ranks << " ranks, " << keys << " key/value heads";
    EXPECT_THAT(to_text(plan),
                HasSubstr(fmt::format("attention {} context ranks: runs of 2 exchange tokens for heads, and {} such "
                                      "runs hand on keys and values; each run has two chunks of a sequence",
                                      ranks, runs)));
  }
}

TEST(Plan, SaysWhereNoRunsOfContextRanksAreLeft) {
  Config config = small_config();
  config.model.type = model::Type::Llama;
  config.parallel.context = 4;
  config.parallel.context_kind = ContextKind::UlyssesRing;
  const auto expect_text = [&](int64_t heads, int64_t keys, int64_t ulysses, const std::string& text) {
    config.model.heads = heads, config.model.key_value_heads = keys, config.model.head_size = 8;
    config.parallel.context_ulysses = ulysses;
    EXPECT_THAT(to_text(plan_of(config, 4)), HasSubstr("attention 4 context ranks" + text));
  };
  expect_text(6, 2, 0,
              ": runs of 2 exchange tokens for heads, and 2 such runs hand on keys and values; each run has two chunks");
  expect_text(8, 2, 0,
              " exchange tokens for heads (ulysses), because the heads allow it for all, which leaves nothing for a ring\n");
  expect_text(8, 2, 4,
              " exchange tokens for heads (ulysses), because parallel.context_ulysses is 4, which leaves nothing for a ring\n");
  expect_text(8, 2, 1, " hand on keys and values, because parallel.context_ulysses is 1; each has two chunks");
  expect_text(3, 3, 0,
              " hand on keys and values, because the heads allow no number of them to exchange tokens for heads; each has");
}

TEST(Plan, RefusesLayersThatCannotShareTheContextAxis) {
  Config config = small_config();
  config.parallel.context = 2;
  const auto expect_refused = [&](const model::Model& model, const std::string& message) {
    EXPECT_THAT([&] { make_plan(config, model, 2); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  model::Model model = model_of(config);
  make_plan(config, model, 2);
  model.description.reset();
  config.model.heads = 1;  // says nothing of a program's own layers
  EXPECT_EQ(make_plan(config, model, 2).config.parallel.context_kind, ContextKind::Ulysses);
  config.parallel.context_kind = ContextKind::UlyssesRing;
  expect_refused(model, "parallel.context_ulysses: 0 is not accepted with a program's own layers, whose heads are not known");
  config.parallel.context_ulysses = 2;
  make_plan(config, model, 2);
  config.parallel.context_kind = ContextKind::Auto;
  model.layers[2] = std::make_unique<Mixing>();
  expect_refused(model, "parallel.context: 2 is not accepted: layer " + model.names[2] + " needs all tokens");
  model = model_of(config);
  model.sample.input = model.sample.targets = {31};
  expect_refused(model, "parallel.context: 2 is not accepted: it does not divide 31 tokens; use 1");
  config.parallel.context = 1;
  config.parallel.context_grain = 2;
  config.reproducible = Reproducible::Layout;
  expect_refused(model, "parallel.context_grain: 2 needs samples that are sequences of tokens, whose number it divides; use 1");
}

TEST(Plan, RefusesLayersThatCannotShareTheTensorAxis) {
  Config config = small_config();
  config.parallel.tensor = 2;
  const auto expect_refused = [&](const model::Model& model, const std::string& message) {
    EXPECT_THAT([&] { make_plan(config, model, 2); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  model::Model model = model_of(config);
  model.layers[2] = std::make_unique<Mixing>();
  make_plan(config, model, 2);
  config.parallel.sequence_parallel = true;
  expect_refused(model, "parallel.sequence_parallel: true is not accepted by layer " + model.names[2]);
  model = model_of(config);
  model.sample.input = {31};
  expect_refused(model, "as 2 tensor ranks do not divide the model's 31 tokens");

  config.parallel.sequence_parallel = false;
  config.reproducible = Reproducible::Layout;
  model = model_of(config);
  const model::Attention::Options grouped{.hidden = 64, .heads = 4, .key_value_heads = 1};
  model.layers[1] = std::make_unique<model::Attention>("grouped", grouped);
  expect_refused(model, "more than the 1 parts (key/value heads) of " + model.names[1]);
}

}  // namespace
}  // namespace trivet
