#include "autotune/step_model.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/make_plan.h"
#include "model/count_flops.h"

namespace trivet::autotune {
namespace {

model::Description small_gpt() {
  return {
      .layers = 6, .hidden_size = 512, .heads = 8, .sequence_length = 256, .vocabulary_size = 1024, .tied_embedding = false};
}

Config config_of_small_gpt() {
  Config config;
  config.model = small_gpt();
  config.bf16.enabled = true;
  return config;
}

double flops_of(const PassWork& work) {
  return std::accumulate(work.calls.begin(), work.calls.end(), 0.0,
                         [](double sum, const kernels::KernelCall& call) { return sum + call.flops; });
}
double bytes_of(const PassWork& work) {
  return std::accumulate(work.operations.begin(), work.operations.end(), 0.0,
                         [](double sum, const AxisOperation& operation) { return sum + operation.bytes; });
}

// A plan rehearses complete ranks. Its counts are the sum of the blocks plus the optimizer.
TEST(BlockWork, AddsUpToWhatAPlanCounts) {
  const model::Model model = model::build(small_gpt());
  Config config = config_of_small_gpt();
  config.batch = {.micro_batch_size = 2, .gradient_accumulation_steps = 1};
  for (const int tensor : {1, 2, 4}) {
    config.parallel.tensor = tensor;
    const Plan plan = make_plan(config, model, tensor);
    double flops = 0, products = 0;
    int64_t parameters = 0;
    for (const auto& work : work_of_blocks(model, {.microbatch = 2, .tensor = tensor})) {
      flops += flops_of(work->forward) + flops_of(work->backward);
      parameters += work->parameters;
      for (const PassWork* part : {&work->forward, &work->backward})
        for (const kernels::KernelCall& call : part->calls) products += call.kernel == "matmul" ? call.flops : 0;
    }
    EXPECT_EQ(
        parameters, plan.ranks[0].layout.blocks.empty() ? 0 : [&] {
          int64_t sum = 0;
          for (const auto& block : plan.ranks[0].layout.blocks)
            for (const auto& group : block.groups) sum += group.parameter_elements();
          return sum;
        }());
    const double optimizer = 25.0 * static_cast<double>(parameters);  // a few FLOPs per parameter: Adam and the norm
    EXPECT_GE(plan.ranks[0].step_counters.flops, flops);
    EXPECT_LE(plan.ranks[0].step_counters.flops, flops + optimizer);
    EXPECT_GT(products, 0.9 * flops);
  }
}

// Every microbatch but the first adds its gradients to existing ones and reads them for that.
TEST(BlockWork, MovesTheBytesOfAMicrobatchThatIsNotTheFirst) {
  Config config = config_of_small_gpt();
  const model::Model model = model::build(small_gpt());
  const auto bytes_of_step = [&](int microbatches) {
    config.batch = {.micro_batch_size = 2, .gradient_accumulation_steps = microbatches};
    return make_plan(config, model, 1).ranks[0].step_counters.bytes;
  };
  double bytes = 0;
  for (const auto& work : work_of_blocks(model, {.microbatch = 2}))
    for (const PassWork* part : {&work->forward, &work->backward})
      for (const kernels::KernelCall& call : part->calls) bytes += call.bytes;
  EXPECT_NEAR(bytes_of_step(3) - bytes_of_step(2), bytes, 100);  // the engine adds up the losses, too
}

// Shoeybi et al. 2019: a block does two all-reduces of b s h elements in the forward and two in the backward. With sequence
// parallelism it does gathers and scatters of the same size, and the backward gathers the inputs of its products once more.
// Layers of one kind with filters of the same size may have other outputs.
TEST(BlockWork, IsThatOfEachLayerOfAListOfLayers) {
  model::Description description{.type = model::Type::Sequential, .input = {3, 8, 8}};
  description.network = {"conv 3 padding 1", "conv 3 padding 1", "conv 3 padding 1 stride 2", "relu", "gelu", "flatten"};
  const model::Model model = model::build(description);
  const Works works = work_of_blocks(model, {.microbatch = 2});
  ASSERT_EQ(works.size(), 7u);
  EXPECT_EQ(works[1]->output_elements, 2 * 3 * 8 * 8);
  EXPECT_EQ(works[2]->output_elements, 2 * 3 * 4 * 4);
  EXPECT_EQ(works[3]->forward.calls.at(0).kernel, "relu");
  EXPECT_EQ(works[4]->forward.calls.at(0).kernel, "gelu");
}

// Half of 256 tokens, at the end of a run. The blocks between have the same parameters.
TEST(BlockWork, IsThatOfTheTokensThatBlocksComputeInTheEnd) {
  model::Description description = small_gpt();
  const auto products_of = [&](size_t block) {
    double flops = 0;
    const auto works = work_of_blocks(model::build(description), {.microbatch = 2});
    for (const kernels::KernelCall& call : works[1 + block]->forward.calls)
      if (call.kernel == std::string("matmul")) flops += call.flops;
    return flops;
  };
  const double whole = products_of(0);
  EXPECT_EQ(products_of(2), whole);
  description.token_drop = {
      .enabled = true, .blocks = {1, 2}, .min_tokens = 16, .max_tokens = 128, .steps = 100, .multiple = 16};
  EXPECT_EQ(products_of(0), whole);
  EXPECT_EQ(products_of(1), whole / 2);
  EXPECT_EQ(products_of(2), whole / 2);
  EXPECT_EQ(products_of(3), whole);
}

// All other blocks have windows.
TEST(BlockWork, TellsBlocksWithWindowsFromOthers) {
  model::Description description = small_gpt();
  description.type = model::Type::Llama;
  description.attention_window = 32;
  description.full_attention_every = 2;
  const auto works = work_of_blocks(model::build(description), {.microbatch = 2});
  EXPECT_LT(flops_of(works[1]->forward), flops_of(works[2]->forward));
  EXPECT_EQ(flops_of(works[1]->forward), flops_of(works[3]->forward));
}

TEST(BlockWork, CountsTheTrafficOfTensorRanks) {
  const model::Model model = model::build(small_gpt());
  const double whole = 2.0 * 2 * 256 * 512;  // bytes of b s h
  const auto block = [&](int tensor, bool sequence) {
    return *work_of_blocks(model, {.microbatch = 2, .tensor = tensor, .sequence_parallel = sequence})[3];
  };
  EXPECT_TRUE(block(1, false).forward.operations.empty());
  EXPECT_EQ(bytes_of(block(2, false).forward), 2 * whole);
  EXPECT_EQ(bytes_of(block(2, false).backward), 2 * whole);
  EXPECT_EQ(bytes_of(block(4, true).forward), 4 * whole);
  EXPECT_EQ(bytes_of(block(4, true).backward), 6 * whole);
}

// A rank of c sends (c - 1) / c of T / c tokens of N query heads, G of keys and G of values before attention and of N after it,
// D elements of two bytes each, and in the backward as much. All other work is that of T / c tokens, and attention has N / c
// heads. N = 32, G = 8 and D = 128 in all cases.
struct Exchange {
  int64_t tokens;
  int ranks;
  double mib;  // sent by a forward
};
class ContextRanks : public testing::TestWithParam<Exchange> {};
INSTANTIATE_TEST_SUITE_P(Ulysses, ContextRanks,
                         testing::Values(Exchange{8192, 2, 40}, Exchange{32768, 4, 120}, Exchange{131072, 8, 280}));

TEST_P(ContextRanks, ExchangeHeadsForTokensAndShareTheWork) {
  const int64_t tokens = GetParam().tokens;
  const int ranks = GetParam().ranks;
  const double mib = GetParam().mib;
  model::Description description{.type = model::Type::Llama,
                                 .layers = 2,
                                 .hidden_size = 4096,
                                 .heads = 32,
                                 .key_value_heads = 8,
                                 .sequence_length = tokens,
                                 .vocabulary_size = 1024};
  const model::Model model = model::build(description);
  const BlockWork shared = *work_of_blocks(model, {.context = ranks})[1], whole = *work_of_blocks(model, {})[1];
  const double sends = mib * (1 << 20), kept = static_cast<double>(ranks) / (ranks - 1);
  EXPECT_TRUE(whole.forward.operations.empty());
  EXPECT_EQ(bytes_of(shared.forward), kept * sends);
  EXPECT_EQ(bytes_of(shared.backward), kept * sends);
  EXPECT_DOUBLE_EQ(ranks * flops_of(shared.forward), flops_of(whole.forward));
  EXPECT_DOUBLE_EQ(ranks * flops_of(shared.backward), flops_of(whole.backward));
  EXPECT_EQ(ranks * shared.output_elements, whole.output_elements);
  description.isolated_documents = true;  // they are those of whole sequences
  EXPECT_EQ(flops_of(work_of_blocks(model::build(description), {.context = ranks})[1]->forward), flops_of(shared.forward));
  description.objective = model::Objective::Dpo;  // a microbatch has two rows, with references of whole sequences
  EXPECT_EQ(flops_of(work_of_blocks(model::build(description), {.context = ranks})[1]->forward), 2 * flops_of(shared.forward));

  // Neighbours in a node, or, with 8 tensor ranks in between, one rank on each of several nodes.
  const Cluster cluster = cluster_named("h100");
  const StepModel steps(model, cluster);
  const auto expected = [&](const LinkRates& link, double bytes) {
    return 2 * 3 * (4 * (ranks - 1) * link.alpha + 2 * bytes * link.beta);  // 2 layers, 3 microbatches
  };
  const StepSeconds near = steps.predict({.context = ranks, .microbatches = 3}).seconds;
  EXPECT_NEAR(near.context / expected(cluster.inside, sends), 1, 1e-12);
  EXPECT_EQ(near.tensor, 0);
  if (ranks * 8 > 32) return;
  // A tensor rank has 4 query heads and one of keys, of which each context rank gets a copy.
  const double copied = static_cast<double>(tokens / ranks * (2 * 4 + 2 * ranks) * 128 * 2) / kept;
  const StepSeconds far = steps.predict({.context = ranks, .tensor = 8, .microbatches = 3}).seconds;
  EXPECT_NEAR(far.context / expected(cluster.outside, copied), 1, 1e-12);
  EXPECT_GT(far.tensor, 0);
}

// With long sequences, gather waits only for the first key/value head, and a ring only for the gradients that it hands home.
// Where links are slow, attention hides itself.
TEST(ContextOperations, OverlapAttentionOfWhatIsThere) {
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 1,
                                           .hidden_size = 4096,
                                           .heads = 32,
                                           .key_value_heads = 8,
                                           .sequence_length = 131072,
                                           .vocabulary_size = 1024});
  const Cluster fast = cluster_named("h100");
  Cluster slow = fast;
  slow.inside.beta = 1e-6;
  const auto takes = [](std::span<const AxisOperation> operations, const LinkRates& link) {
    double seconds = 0;
    for (const AxisOperation& of : operations)
      seconds += of.operation == comm::Operation::AllGather ? ring_all_gather(4, of.bytes, link)
                                                            : pairwise_all_to_all(4, of.bytes, link);
    return seconds;
  };
  const auto waits = [&](ContextKind kind, const Cluster& cluster) {
    return StepModel(model, cluster).predict({.context = 4, .context_kind = kind}).seconds.context;
  };
  const auto operations = [&](ContextKind kind) {
    const BlockWork work = *work_of_blocks(model, {.context = 4, .context_kind = kind})[1];
    return std::pair(work.forward.operations, work.backward.operations);
  };
  const auto [gathers, gathers_back] = operations(ContextKind::Gather);
  ASSERT_EQ(gathers.size(), 8);
  ASSERT_EQ(gathers_back.size(), 2 * 8);  // statistics apart
  const double first = takes(std::span(gathers).first(1), fast.inside) + takes(std::span(gathers_back).first(2), fast.inside);
  EXPECT_NEAR(waits(ContextKind::Gather, fast) / first, 1, 0.02);  // statistics are packed while the first gather runs
  const auto [hops, hops_back] = operations(ContextKind::Ring);
  ASSERT_EQ(hops.size(), 3);
  ASSERT_EQ(hops_back.size(), 3 + 4);
  EXPECT_NEAR(waits(ContextKind::Ring, fast), takes(std::span(hops_back).last(1), fast.inside), 1e-9);
  for (ContextKind kind : {ContextKind::Gather, ContextKind::Ring}) {
    const auto [forward, backward] = operations(kind);
    const double all = takes(forward, slow.inside) + takes(backward, slow.inside);
    EXPECT_LT(waits(kind, slow), all);
    EXPECT_GT(waits(kind, slow), 0.8 * all);
  }
}

// Runs of 2 ranks exchange heads inside a node; the 4 runs are on 4 nodes if 4 tensor ranks are in between. Two layers and
// three microbatches wait for 4 exchanges, 2 x 3 hand-overs of keys, and 4 of their gradients in float32.
TEST(StepModel, PricesTheRingOfRunsOverTheLinksBetweenThem) {
  const int64_t tokens = 4096, neighbours = 2, runs = 4, ranks = 8;
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 2,
                                           .hidden_size = 4096,
                                           .heads = 32,
                                           .key_value_heads = 8,
                                           .sequence_length = tokens,
                                           .vocabulary_size = 1024});
  Cluster cluster = cluster_named("h100");
  cluster.device.memory_bandwidth = cluster.device.matrix_flops = 1e30;  // nothing to overlap with
  cluster.device.launch_seconds = 0;
  const StepModel steps(model, cluster);
  for (const int64_t tensor : {1, 4}) {
    const LinkRates& near = cluster.inside;
    const LinkRates& far = tensor == 1 ? cluster.inside : cluster.outside;
    const double heads = 32. / static_cast<double>(tensor), keys = 8. / static_cast<double>(tensor);
    const double own = static_cast<double>(tokens / ranks) * 128 * 2;
    const double exchanges = 2 * (2 * near.alpha + own * (2 * heads + 2 * keys) / 2 * near.beta);
    // Priced as all-to-alls of as many bytes: each of the runs - 1 messages has its latency.
    const double hand_over = (runs - 1) * far.alpha + own * 2 * keys * far.beta;
    const double gradient = (runs - 1) * far.alpha + 2 * own * 2 * keys * far.beta;
    const double expected = 2 * 3 * (exchanges + 2 * (runs - 1) * hand_over + runs * gradient);
    const StepSeconds seconds = steps
                                    .predict({.context = ranks,
                                              .tensor = tensor,
                                              .microbatches = 3,
                                              .context_kind = ContextKind::UlyssesRing,
                                              .context_neighbours = neighbours})
                                    .seconds;
    EXPECT_NEAR(seconds.context / expected, 1, 1e-12) << tensor << " tensor ranks";
  }
}

TEST(BlockWork, KeepsLessWithRecomputationAndTensorRanks) {
  const model::Model model = model::build(small_gpt());
  const auto saved = [&](const BlockSite& site) { return work_of_blocks(model, site)[3]->saved_bytes; };
  const int64_t all = saved({}), attention = saved({.recompute_attention = true}), split = saved({.tensor = 2}),
                sequence = saved({.tensor = 2, .sequence_parallel = true});
  EXPECT_LT(attention, all);
  EXPECT_LT(split, all);
  EXPECT_LT(sequence, split);
  EXPECT_GE(2 * sequence, all);  // everything that belongs to a token is halved
  EXPECT_LE(2 * sequence, all + 4096);
}

class OfSmallGpt : public testing::Test {
 protected:
  OfSmallGpt() : model(model::build(small_gpt())), cluster(cluster_named("h100")), steps(model, cluster) {}
  StepSeconds seconds(const Layout& layout) const { return steps.predict(layout).seconds; }

  model::Model model;
  Cluster cluster;
  StepModel steps;
};

// With low-rank adapters the rest of the model has weights only.
TEST(FrozenWeights, HaveNeitherGradientsNorOptimizerStates) {
  model::Description description = small_gpt();
  description.lora = {.rank = 4, .alpha = 8, .targets = {"c_attn"}};
  const model::Model all = model::build(small_gpt()), adapters = model::build(description);
  const Cluster cluster = cluster_named("h100");
  const StateTypes types;
  const double count = 6.0 * 4 * (512 + 3 * 512);
  for (const int stage : {0, 1, 2, 3}) {
    const Layout layout{.data = 4, .zero_stage = stage};
    const StepBytes with = StepModel(adapters, cluster, types).bytes(layout),
                    without = StepModel(all, cluster, types).bytes(layout);
    EXPECT_DOUBLE_EQ(with.optimizer, count * types.optimizer_bytes / (stage >= 1 ? 4 : 1)) << stage;
    EXPECT_DOUBLE_EQ(with.gradients, count * types.gradient_bytes / (stage >= 2 ? 4 : 1)) << stage;
    EXPECT_DOUBLE_EQ(with.parameters - without.parameters, count * types.weight_bytes() / (stage >= 3 ? 4 : 1)) << stage;
  }
}

TEST_F(OfSmallGpt, KernelsTakeWhatLimitsThem) {
  const Accelerator& device = cluster.device;
  const auto seconds = [&](kernels::Bound bound, DType dtype, double flops, double bytes) {
    return steps.kernel_seconds({.kernel = "new", .dtype = dtype, .bound = bound, .flops = flops, .bytes = bytes});
  };
  using enum kernels::Bound;
  const double bf16 = 1e15 / (device.matrix_flops * device.product_efficiency);
  EXPECT_DOUBLE_EQ(seconds(Products, DType::BFloat16, 1e15, 1e6), bf16);
  EXPECT_DOUBLE_EQ(seconds(Attention, DType::BFloat16, 1e15, 1e6), bf16);
  EXPECT_DOUBLE_EQ(seconds(Products, DType::Float32, 1e15, 1e6), 1e15 / (device.float32_flops * device.product_efficiency));
  EXPECT_DOUBLE_EQ(seconds(Memory, DType::BFloat16, 1e15, 3e9), 3e9 / device.memory_bandwidth);
  EXPECT_DOUBLE_EQ(seconds(Memory, DType::BFloat16, 1, 1), device.launch_seconds);
  EXPECT_THROW(seconds(Unstated, DType::BFloat16, 1, 1), std::logic_error);
}

// A tensor axis of 8 stays in a node. A data axis across it takes every eighth device, each on a different node.
TEST_F(OfSmallGpt, OperationsRunWhereTheirRanksAre) {
  const double bytes = 1e9;
  const auto gather = [&](int64_t ranks, int64_t stride) {
    return steps.operation_seconds(comm::Operation::AllGather, bytes, ranks, stride);
  };
  EXPECT_DOUBLE_EQ(gather(8, 1), ring_all_gather(8, bytes, cluster.inside));
  EXPECT_DOUBLE_EQ(gather(4, 8), ring_all_gather(4, bytes, cluster.outside));
  EXPECT_DOUBLE_EQ(gather(16, 1), ring_all_gather(2, bytes / 8, cluster.outside) + ring_all_gather(8, bytes, cluster.inside));
  EXPECT_DOUBLE_EQ(gather(8, 2), ring_all_gather(2, bytes / 4, cluster.outside) + ring_all_gather(4, bytes, cluster.inside));
  EXPECT_EQ(gather(1, 1), 0);
}

TEST_F(OfSmallGpt, MicrobatchesAddUpAndAPipelineHasItsBubble) {
  const StepSeconds one = seconds({}), four = seconds({.microbatches = 4});
  EXPECT_DOUBLE_EQ(four.compute, 4 * one.compute);
  EXPECT_EQ(one.bubble, 0);
  EXPECT_EQ(one.data, 0);
  EXPECT_EQ(one.tensor, 0);
  const StepSeconds few = seconds({.pipeline = 4, .microbatches = 4}), many = seconds({.pipeline = 4, .microbatches = 64});
  EXPECT_DOUBLE_EQ(few.bubble, many.bubble);  // that of the first and the last microbatch
  EXPECT_NEAR(few.bubble, 3 * few.compute / 4, 0.05 * few.bubble);
  const StepSeconds split = seconds({.pipeline = 2, .chunks = 3, .schedule = ScheduleKind::Interleaved, .microbatches = 4}),
                    whole = seconds({.pipeline = 2, .microbatches = 4}),
                    zero_bubble = seconds({.pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1, .microbatches = 4});
  EXPECT_LT(split.bubble, 0.5 * whole.bubble);
  EXPECT_LT(zero_bubble.bubble, 0.5 * whole.bubble);
}

TEST_F(OfSmallGpt, RecomputingIsAForwardMore) {
  const StepSeconds kept = seconds({.microbatches = 2}), again = seconds({.microbatches = 2, .recompute = Recompute::Full});
  EXPECT_EQ(kept.recompute, 0);
  EXPECT_DOUBLE_EQ(again.compute, kept.compute);
  EXPECT_GT(again.recompute, 0.2 * kept.compute);
  EXPECT_LT(again.recompute, 0.4 * kept.compute);
}

// Context ranks hold the same weights as data ranks, and nothing else distinguishes the two on the data axis.
TEST_F(OfSmallGpt, GradientsAreSumsOverDataAndContextRanks) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto of = [&](int64_t data, int64_t context) {
      return steps.predict({.data = data, .context = context, .zero_stage = stage, .microbatches = 2, .overlap = false});
    };
    const StepPrediction data = of(16, 1), both = of(4, 4);
    EXPECT_DOUBLE_EQ(both.seconds.data, data.seconds.data) << stage;
    EXPECT_DOUBLE_EQ(both.seconds.optimizer, data.seconds.optimizer) << stage;
    EXPECT_GT(both.seconds.data, 0);
    EXPECT_DOUBLE_EQ(both.bytes.parameters + both.bytes.gradients + both.bytes.optimizer,
                     data.bytes.parameters + data.bytes.gradients + data.bytes.optimizer)
        << stage;
    EXPECT_LT(both.bytes.activations, data.bytes.activations / 3) << stage;
  }
}

// Overlapped or not, the same operations take the same time.
TEST_F(OfSmallGpt, WhatIsHiddenIsNotExposed) {
  const auto expect_same_sum = [&](const Layout& overlapped, const Layout& in_turn) {
    const StepSeconds some = seconds(overlapped), none = seconds(in_turn);
    EXPECT_GT(some.data + some.tensor, 0);
    EXPECT_GT(some.hidden, 0);
    EXPECT_EQ(none.hidden, 0);
    EXPECT_NEAR(some.data + some.tensor + some.hidden, none.data + none.tensor, 1e-12);
    EXPECT_NEAR(some.total() + some.hidden, none.total(), 1e-12);
  };
  for (const int stage : {0, 1, 2, 3}) {
    const Layout layout{.data = 16, .zero_stage = stage, .microbatches = 2};
    Layout in_turn = layout;
    in_turn.overlap = false;
    expect_same_sum(layout, in_turn);
  }
  for (const Recompute recompute : {Recompute::None, Recompute::Full}) {
    const Layout split{.tensor = 8, .microbatches = 2, .recompute = recompute, .sequence_parallel = true};
    Layout in_turn = split;
    in_turn.overlap_tensor = false;
    expect_same_sum(split, in_turn);
  }
}

// A parameter takes 2 + 2 + 12 bytes, and each stage shards one more of the three.
TEST_F(OfSmallGpt, StatesAreShardedByTheirStage) {
  const double parameters = static_cast<double>(model::parameter_count(model));
  for (int stage = 0; stage <= 3; ++stage) {
    const StepBytes bytes = steps.predict({.data = 8, .zero_stage = stage}).bytes;
    EXPECT_DOUBLE_EQ(bytes.parameters, parameters * 2 / (stage >= 3 ? 8 : 1));
    EXPECT_DOUBLE_EQ(bytes.gradients, parameters * 2 / (stage >= 2 ? 8 : 1));
    EXPECT_DOUBLE_EQ(bytes.optimizer, parameters * 12 / (stage >= 1 ? 8 : 1));
  }
}

TEST(StateTypes, AreTheEngines) {
  Config config;
  const auto of = [&] {
    const StateTypes types = state_types(config);
    return std::vector<double>{types.weight_bytes(), types.gradient_bytes, types.optimizer_bytes};
  };
  EXPECT_EQ(of(), (std::vector<double>{4, 4, 8}));
  config.bf16.enabled = true;
  EXPECT_EQ(of(), (std::vector<double>{2, 4, 12}));
  config.grad_accum_dtype = DType::BFloat16;
  EXPECT_EQ(of(), (std::vector<double>{2, 2, 12}));
  config.grad_accum_dtype = DType::Float32;
  config.optimizer.type = OptimizerType::Lion;
  EXPECT_EQ(of(), (std::vector<double>{2, 4, 8}));
  config.reproducible = Reproducible::Layout;
  EXPECT_EQ(of(), (std::vector<double>{2, 8, 8}));
}

// GPipe holds all m microbatches, so the size of one is the difference between two and one of them. 1F1B holds min(m, p - i) on
// rank i.
TEST_F(OfSmallGpt, RankIHoldsPMinusIMicrobatchesWithOneForwardOneBackward) {
  constexpr int64_t kRanks = 4;
  const auto activations = [&](ScheduleKind schedule, int64_t microbatches) {
    return steps.bytes_of_ranks({.pipeline = kRanks, .schedule = schedule, .microbatches = microbatches});
  };
  const auto one = activations(ScheduleKind::GPipe, 1), two = activations(ScheduleKind::GPipe, 2);
  for (const int64_t m : {1, 2, 3, 4, 5, 16}) {
    const auto all = activations(ScheduleKind::GPipe, m), few = activations(ScheduleKind::OneForwardOneBackward, m);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const double microbatch = two[rank].activations - one[rank].activations;
      ASSERT_GT(microbatch, 0);
      EXPECT_NEAR(all[rank].activations - one[rank].activations, static_cast<double>(m - 1) * microbatch, 1e-6 * microbatch);
      EXPECT_NEAR(few[rank].activations - one[rank].activations,
                  static_cast<double>(std::min(m, kRanks - rank) - 1) * microbatch, 1e-6 * microbatch)
          << m << " microbatches, rank " << rank;
    }
  }
}

// Full recomputation keeps the input of a block, T x H elements of two bytes, and the rest only while that block runs again.
TEST_F(OfSmallGpt, FullRecomputationKeepsTheInputsOfBlocks) {
  const auto activations = [&](int64_t microbatches) {
    return steps
        .bytes({.pipeline = 2, .schedule = ScheduleKind::GPipe, .microbatches = microbatches, .recompute = Recompute::Full})
        .activations;
  };
  const double input = 2.0 * 256 * 512, microbatch = activations(3) - activations(2);
  EXPECT_GE(microbatch, 3 * input);  // three or four blocks of the eight
  EXPECT_LE(microbatch, 5 * input);
}

// The first microbatch crosses p - 1 links in each direction. Links between nodes are slower. 8 ranks fill a node, 16 need two.
TEST_F(OfSmallGpt, PipelinesUseTheLinksBetweenNodesOnlyWhereTheyLeaveANode) {
  const auto bubble = [&](const Layout& layout, double inside, double outside) {
    cluster.inside.alpha = inside, cluster.outside.alpha = outside;
    return seconds(layout).bubble;
  };
  for (const Layout& node : {Layout{.pipeline = 8}, Layout{.tensor = 2, .pipeline = 4}, Layout{.data = 4, .pipeline = 2}}) {
    const double hops = 2 * static_cast<double>(node.pipeline - 1);
    EXPECT_EQ(bubble(node, 0, 1), bubble(node, 0, 0)) << to_string(node);
    EXPECT_NEAR(bubble(node, 1, 0) - bubble(node, 0, 0), hops, 1e-9) << to_string(node);
  }
  for (const Layout& nodes : {Layout{.tensor = 2, .pipeline = 8}, Layout{.data = 8, .pipeline = 2}}) {
    const double hops = 2 * static_cast<double>(nodes.pipeline - 1);
    EXPECT_EQ(bubble(nodes, 1, 0), bubble(nodes, 0, 0)) << to_string(nodes);
    EXPECT_NEAR(bubble(nodes, 0, 1) - bubble(nodes, 0, 0), hops, 1e-9) << to_string(nodes);
  }
}

// The model is compared with the plan that the engine's own code makes. For the heaviest rank, which decides whether a layout
// fits, they agree within 4 % and 1 MiB (one layer's input for a microbatch of four sequences). For the other ranks of a
// pipeline they agree within 10 %, or 30 % where the model knows the schedule only roughly and one microbatch more or less
// shows.
TEST_F(OfSmallGpt, BytesAreThoseOfThePlan) {
  Config config = config_of_small_gpt();
  config.zero.stage3_param_persistence_threshold = 0;
  for (const Layout& layout :
       {Layout{.microbatch = 2}, Layout{.data = 2, .zero_stage = 1, .microbatch = 2, .microbatches = 2},
        Layout{.pipeline = 2, .microbatch = 4, .microbatches = 4},
        Layout{.tensor = 2, .microbatch = 4, .sequence_parallel = true},
        Layout{.data = 2, .context = 2, .zero_stage = 2, .microbatch = 4, .microbatches = 2},
        Layout{.context = 4, .tensor = 2, .pipeline = 2, .zero_stage = 1, .microbatch = 4, .microbatches = 4},
        Layout{.context = 8,
        .zero_stage = 1,
        .microbatch = 4,
        .microbatches = 2,
        .context_kind = ContextKind::UlyssesRing,
        .context_neighbours = 4},
        Layout{.pipeline = 2, .chunks = 2, .schedule = ScheduleKind::Interleaved, .microbatch = 4, .microbatches = 4},
        Layout{.pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1, .microbatch = 4, .microbatches = 6},
        Layout{.pipeline = 4, .microbatch = 4, .microbatches = 6},
        Layout{.pipeline = 4, .schedule = ScheduleKind::GPipe, .microbatch = 4, .microbatches = 6},
        Layout{.pipeline = 4, .schedule = ScheduleKind::ZeroBubbleH1, .microbatch = 4, .microbatches = 6},
        Layout{.microbatch = 4, .recompute = Recompute::Full}, Layout{.microbatch = 4, .recompute = Recompute::Selective},
        Layout{.data = 2, .zero_stage = 2, .microbatch = 2, .offload_optimizer = true},
        Layout{.data = 2, .pipeline = 2, .zero_stage = 1, .microbatch = 2, .microbatches = 4, .offload_optimizer = true}}) {
    config.parallel.context = layout.context;
    config.parallel.context_kind = layout.context_kind;
    config.parallel.context_ulysses = layout.context_kind == ContextKind::UlyssesRing ? layout.context_neighbours : 0;
    config.parallel.tensor = layout.tensor, config.parallel.pipeline = layout.pipeline;
    config.parallel.sequence_parallel = layout.sequence_parallel;
    config.pipeline.schedule = layout.schedule, config.pipeline.chunks = layout.chunks > 1 ? layout.chunks : 0;
    config.zero.stage = layout.zero_stage;
    config.recompute = layout.recompute;
    config.device = layout.offload_optimizer ? DeviceChoice::Cuda : DeviceChoice::Cpu;
    config.zero.offload_optimizer.device = layout.offload_optimizer ? OffloadDevice::Cpu : OffloadDevice::None;
    config.batch = {.micro_batch_size = layout.microbatch, .gradient_accumulation_steps = layout.microbatches};
    const Plan plan = make_plan(config, model, static_cast<int>(layout.devices()));
    const StepModel of_config(model, cluster, state_types(config));
    const StepBytes bytes = of_config.predict(layout).bytes;
    const auto expect_near = [&](const StepBytes& predicted, const RankPlan& planned, double share, const std::string& where) {
      const auto near = [&](double number, MemoryCategory category) {
        const double expected = static_cast<double>(planned.memory[category]);
        EXPECT_NEAR(number, expected, share * expected + (1 << 20)) << to_string(layout) << ", " << where;
      };
      near(predicted.parameters, MemoryCategory::Parameters);
      near(predicted.gradients, MemoryCategory::Gradients);
      near(predicted.optimizer, MemoryCategory::Optimizer);
      near(predicted.activations, MemoryCategory::Activations);
    };
    expect_near(bytes, plan.heaviest(), 0.04, "heaviest");
    const bool known = layout.schedule == ScheduleKind::GPipe || layout.schedule == ScheduleKind::OneForwardOneBackward;
    const std::vector<StepBytes> of_ranks = of_config.bytes_of_ranks(layout);
    ASSERT_EQ(of_ranks.size(), static_cast<size_t>(layout.pipeline));
    for (int rank = 0; rank < layout.pipeline; ++rank) {
      const RankPlan& planned = plan.rank(plan.mesh.ranks_at({{Axis::Pipeline, rank}}).front());
      expect_near(of_ranks[rank], planned, known ? 0.1 : 0.3, "pipeline rank " + std::to_string(rank));
    }
    const double host = static_cast<double>(plan.heaviest().host_memory.total());
    EXPECT_NEAR(bytes.host, host, 0.04 * host) << to_string(layout);
  }
}

// Half of the parameters cross the link down and up, and their states and copies pass twice through the host's memory. The
// slowest part counts. The first of the 8 blocks arrives, and the last leaves, with nothing to overlap.
TEST_F(OfSmallGpt, OffloadTakesItsSlowestPart) {
  const double updated = static_cast<double>(model::parameter_count(model)) / 2;
  const auto offload = [&](double memory, double link) {
    cluster.host = {.memory_bytes = int64_t{1} << 40, .memory_bandwidth = memory, .link_bandwidth = link};
    return seconds({.data = 2, .zero_stage = 1, .offload_optimizer = true}).offload;
  };
  const double copies = updated * (2 + 2) / 1e10 / 8;
  EXPECT_DOUBLE_EQ(offload(1e9, 1e10), updated * 2 * (12 + 2 + 2) / 1e9 + copies);
  EXPECT_DOUBLE_EQ(offload(1e15, 1e10), updated * 2 / 1e10 + copies);
  EXPECT_EQ(seconds({.data = 2, .zero_stage = 1}).offload, 0);
  EXPECT_LT(seconds({.data = 2, .zero_stage = 1, .offload_optimizer = true}).optimizer,
            seconds({.data = 2, .zero_stage = 1}).optimizer);
}

// A block that is larger than a bucket costs one more latency for each piece, and none of a shard's pieces is overlapped.
TEST_F(OfSmallGpt, SmallBucketsCostLatencyAndOverlap) {
  const auto data = [&](int stage, int64_t reduce, int64_t gather) {
    return seconds({.data = 16, .zero_stage = stage, .reduce_bucket = reduce, .gather_bucket = gather}).data;
  };
  const double blocks = static_cast<double>(model.layers.size());
  const double block = static_cast<double>(model::parameter_count(model)) / blocks;
  const auto half = static_cast<int64_t>(block / 2) + 1;
  EXPECT_EQ(data(1, 0, 0), data(1, static_cast<int64_t>(block) + 1, static_cast<int64_t>(block) + 1));
  const auto in_turn = [&](comm::Operation operation, double pieces) {
    return blocks * pieces * steps.operation_seconds(operation, 2 * block / pieces, 16, 1);
  };
  // With both in two pieces the step waits for all of it.
  EXPECT_DOUBLE_EQ(data(1, half, half), in_turn(comm::Operation::ReduceScatter, 2) + in_turn(comm::Operation::AllGather, 2));
  EXPECT_LT(data(1, 0, 0), data(1, half, 0));
  EXPECT_LT(data(1, 0, 0), data(1, 0, half));
}

// With ZeRO-3 a gather that is not started ahead overlaps with nothing, and one block fewer is gathered at a time.
TEST_F(OfSmallGpt, WithoutPrefetchingGathersAreWaitedFor) {
  StateTypes types;
  types.most_reuse_distance = 0;  // stage3_release "use"
  const StepModel released(model, cluster, types);
  const Layout ahead{.data = 16, .zero_stage = 3, .microbatch = 8};
  Layout without = ahead;
  without.prefetch = false;
  EXPECT_GT(released.predict(without).seconds.data, released.predict(ahead).seconds.data);
  int64_t largest = 0;
  for (const auto& work : work_of_blocks(model, {.microbatch = 8})) largest = std::max(largest, work->parameters);
  EXPECT_EQ(released.largest_block(ahead), largest);
  EXPECT_DOUBLE_EQ(released.bytes(ahead).buffers - released.bytes(without).buffers, 2 * static_cast<double>(largest));
}

// The timeline is the computation of the full step. Where stages are alike it is as long as the prediction's own parts.
TEST_F(OfSmallGpt, TimelineHasTheStagesTimes) {
  const Layout layout{.pipeline = 4, .microbatches = 8};
  const StepSeconds seconds = steps.predict(layout).seconds;
  const pipeline::Timeline timeline = steps.timeline(layout, 8);
  EXPECT_EQ(timeline.ranks.size(), 4);
  // It is never longer than with all stages as slow as the slowest, and never shorter than the work of that stage.
  EXPECT_LE(timeline.makespan, 1e3 * seconds.total());
  EXPECT_GE(timeline.makespan, 1e3 * seconds.compute);
}

// A W takes the time of the kernels that make gradients of weights, an I that of the rest of the backward.
TEST_F(OfSmallGpt, TimelineOfAZeroBubbleScheduleDelaysWhatMakesWeightGradients) {
  double weights = 0, backward = 0;
  for (const auto& work : work_of_blocks(model, {.microbatch = 1, .dtype = DType::BFloat16}))
    for (const kernels::KernelCall& call : work->backward.calls) {
      backward += steps.kernel_seconds(call);
      if (call.result == kernels::Result::WeightGradient) weights += steps.kernel_seconds(call);
    }
  ASSERT_GT(weights, 0.2 * backward);
  ASSERT_LT(weights, 0.8 * backward);
  const pipeline::Timeline timeline =
      steps.timeline({.pipeline = 2, .schedule = ScheduleKind::ZeroBubbleH1, .microbatches = 4}, 4);
  double milliseconds = 0;
  for (const auto& rank : timeline.ranks)
    for (const pipeline::TimedInstruction& timed : rank)
      if (timed.instruction.op == pipeline::Op::BackwardWeight) milliseconds += timed.end - timed.start;
  EXPECT_NEAR(milliseconds, 4 * 1e3 * weights, 1e-9 * milliseconds);  // the sums are in another order
}

// model FLOPs / (time x devices x matrix rate)
TEST_F(OfSmallGpt, UtilizationIsOfTheModelsFlops) {
  const StepPrediction step = steps.predict({.data = 4, .zero_stage = 1, .microbatch = 2, .microbatches = 3});
  const double tokens = 4 * 2 * 3 * 256;
  EXPECT_DOUBLE_EQ(step.targets_per_second, tokens / step.seconds.total());
  EXPECT_NEAR(step.model_flops_utilization,
              model::flops_per_sample(model) / 256 * tokens / step.seconds.total() / (4 * cluster.device.matrix_flops), 1e-12);
}

}  // namespace
}  // namespace trivet::autotune
