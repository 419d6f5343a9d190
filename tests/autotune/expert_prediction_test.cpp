// Predicted steps of models with experts, which ranks may share.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "autotune/search.h"
#include "autotune/step_model.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;

// T tokens, H hidden, F of an expert, K experts of E a token
constexpr int64_t T = 64, H = 64, F = 32, E = 8, K = 2;

model::Description mixture() {
  model::Description description{.type = model::Type::Llama,
                                 .layers = 2,
                                 .hidden_size = H,
                                 .heads = 4,
                                 .feed_forward_size = 128,
                                 .sequence_length = T,
                                 .vocabulary_size = 128,
                                 .tied_embedding = false};
  description.experts = {.count = E, .per_token = K, .feed_forward_size = F};
  return description;
}

double flops_of_rows(const PassWork& work) {
  double flops = 0;
  for (const kernels::KernelCall& call : work.calls)
    if (call.kernel == "grouped_matmul" || call.kernel == "grouped_gradient") flops += call.flops;
  return flops;
}

double bytes_of_rows(const PassWork& work) {
  double bytes = 0;
  for (const AxisOperation& operation : work.operations)
    if (operation.axis == Axis::Expert && operation.operation == comm::Operation::Send) bytes += operation.bytes;
  return bytes;
}

// docs/experts.md: x and y of (n - 1) / n of T K rows, and their weights in float32. Backward sends x, dy and dx, and weights
// and their gradients. A rank computes as many rows as without sharing, with a share of the experts.
TEST(ExpertWork, OfRanksIsTheSameAndTheySendRows) {
  const model::Model model = model::build(mixture());
  const BlockWork alone = *work_of_blocks(model, {})[1];
  EXPECT_EQ(alone.expert_parameters, 0);
  EXPECT_EQ(bytes_of_rows(alone.forward), 0);
  EXPECT_EQ(flops_of_rows(alone.forward), 2.0 * T * K * 3 * F * H);
  for (const int ranks : {2, 4, 8}) {
    const BlockWork shared = *work_of_blocks(model, {.expert = ranks})[1];
    const double rows = static_cast<double>(T * K * (ranks - 1)) / ranks;
    EXPECT_EQ(bytes_of_rows(shared.forward), rows * (2 * 2 * H + 4)) << ranks;
    EXPECT_EQ(bytes_of_rows(shared.backward), rows * (3 * 2 * H + 2 * 4)) << ranks;
    EXPECT_EQ(flops_of_rows(shared.forward), flops_of_rows(alone.forward)) << ranks;
    EXPECT_EQ(flops_of_rows(shared.backward), flops_of_rows(alone.backward) + 2.0 * T * K * 2 * F * H) << "gate and up again";
    EXPECT_EQ(shared.expert_parameters, 3 * H * F * E / ranks) << ranks;
    EXPECT_EQ(alone.parameters - shared.parameters, 3 * H * F * E * (ranks - 1) / ranks) << ranks;
  }
}

// Half a tile of 128 rows is empty for each expert; so with 64 rows each a product takes twice as long, with 6,400 1 % more.
TEST(ExpertWork, TakesLongerWithFewRowsPerExpert) {
  const model::Model model = model::build(mixture());
  Cluster cluster = cluster_named("h100");
  const StepModel steps(model, cluster);
  const auto seconds = [&](std::string_view kernel, std::array<int64_t, 5> sizes) {
    return steps.kernel_seconds(
        {.kernel = kernel, .dtype = DType::BFloat16, .sizes = sizes, .bound = kernels::Bound::Products, .flops = 1e15});
  };
  const double single = seconds("matmul", {512, 2048, 768});
  EXPECT_DOUBLE_EQ(seconds("grouped_matmul", {512, 2048, 768, 8}), 2 * single);
  EXPECT_DOUBLE_EQ(seconds("grouped_gradient", {2048, 768, 51200, 8}), 1.01 * single);
  EXPECT_DOUBLE_EQ(seconds("grouped_matmul", {8, 2048, 768, 128}), 128 * single) << "a tile for each row";
  EXPECT_EQ(seconds("grouped_matmul", {0, 2048, 768, 8}), single);
}

// In each of n - 1 rounds the fullest rank waits for its messages: three a round in forward, five in backward. With two devices
// per node, some of the messages of every round are between nodes.
TEST(ExpertAxis, WaitsForTheRoundsOfTheFullestRank) {
  const model::Model model = model::build(mixture());
  Cluster cluster = cluster_named("h100");
  cluster.expert_imbalance = 1.5;
  for (const int64_t apart : {1, 4}) {
    cluster.devices_per_node = apart == 1 ? 8 : 2;
    const LinkRates& link = apart == 1 ? cluster.inside : cluster.outside;
    const StepModel steps(model, cluster);
    const int64_t ranks = 4;
    const double rows = static_cast<double>(T * K * (ranks - 1)) / ranks, bytes = rows * (5 * 2 * H + 3 * 4);
    const double counts = 2 * steps.operation_seconds(comm::Operation::AllGather, 4 * E * ranks, ranks, 1);
    const double expected = 2 * 3 * (8 * (ranks - 1) * link.alpha + 1.5 * bytes * link.beta + counts);  // layers, microbatches
    const Layout layout{.data = ranks, .expert = ranks, .microbatches = 3};
    const StepSeconds shared = steps.predict(layout).seconds;
    EXPECT_NEAR(shared.expert / expected, 1, 1e-12) << apart;
    EXPECT_EQ(shared.tensor, 0);
    EXPECT_GT(shared.recompute, 0) << "backward computes rows again";
    const StepSeconds alone = steps.predict({.data = ranks, .microbatches = 3}).seconds;
    EXPECT_EQ(alone.expert, 0);
    EXPECT_EQ(alone.recompute, 0);
  }
}

TEST(ExpertAxis, TakesLongerTheLessEvenlyRowsAreDivided) {
  model::Description large = mixture();
  large.hidden_size = 2048, large.experts.feed_forward_size = 8192, large.sequence_length = 4096;
  const model::Model model = model::build(large);
  Cluster cluster = cluster_named("h100");
  cluster.inside.alpha = 0;
  const auto step = [&](double imbalance, int64_t ranks) {
    cluster.expert_imbalance = imbalance;
    return StepModel(model, cluster).predict({.data = 4, .expert = ranks}).seconds;
  };
  EXPECT_EQ(step(2, 1).total(), step(1, 1).total()) << "each rank has its own rows";
  const StepSeconds even = step(1, 4), uneven = step(2, 4);
  EXPECT_NEAR(uneven.expert / even.expert, 2, 0.001);
  EXPECT_NEAR(uneven.recompute / even.recompute, 2, 1e-9) << "experts alone are computed again";
  EXPECT_GT(uneven.compute, 1.5 * even.compute);
  EXPECT_LT(uneven.compute, 2 * even.compute) << "attention is not";
}

// Trivet's full recomputation leaves experts that ranks share to backward, which computes gate and up again. After a forward
// that is repeated as a whole, as other engines repeat it, backward computes nothing again.
TEST(ExpertRecomputation, HappensOnce) {
  const model::Model model = model::build(mixture());
  Cluster cluster = cluster_named("h100");
  cluster.expert_imbalance = 1;
  const StepModel steps(model, cluster);
  const auto kernels = [&](const PassWork& work, bool of_experts) {
    double seconds = 0;
    for (const kernels::KernelCall& call : work.calls) {
      const bool counts = call.kernel == "weighted_swiglu" || (call.kernel == "grouped_matmul" && call.variant == "nt");
      if (!of_experts || counts) seconds += steps.kernel_seconds(call);
    }
    return seconds;
  };
  const BlockWork work = *work_of_blocks(model, {.expert = 4})[1];
  const auto recompute = [&](Recompute mode, bool outputs) {
    return steps.predict({.data = 4, .expert = 4, .recompute = mode, .recompute_outputs = outputs}).seconds.recompute;
  };
  const double again = kernels(work.backward, true);
  EXPECT_GT(again, 0);
  EXPECT_NEAR(recompute(Recompute::None, false) / (2 * again), 1, 1e-9);
  EXPECT_NEAR(recompute(Recompute::Full, false) / (2 * (again + kernels(work.again, false))), 1, 1e-9);
  EXPECT_NEAR(recompute(Recompute::Full, true) / (2 * kernels(work.forward, false)), 1, 1e-9);
}

// ZeRO gathers dense weights among all ranks, and those of experts among the ranks that have the same ones, which are n apart.
TEST(ExpertAxis, DividesExpertsOverTheRanksThatHaveTheSame) {
  const model::Model model = model::build(mixture());
  const Cluster cluster = cluster_named("h100");
  StateTypes types;
  types.most_reuse_distance = 0;  // gathers twice a microbatch
  const StepModel steps(model, cluster, types);
  const int64_t ranks = 16, sharing = 4, blocks = 2 + 2;
  const Layout layout{.data = ranks, .expert = sharing, .zero_stage = 3, .overlap = false};
  const double experts = 2. * 3 * H * F * E / sharing;
  const double dense = static_cast<double>(model::parameter_count(model)) - experts * sharing;
  const auto seconds = [&](comm::Operation operation) {
    return blocks * steps.operation_seconds(operation, 2 * dense / blocks, ranks, 1) +
           2 * steps.operation_seconds(operation, 2 * experts / 2, ranks / sharing, sharing);
  };
  EXPECT_DOUBLE_EQ(steps.predict(layout).seconds.data,
                   2 * seconds(comm::Operation::AllGather) + seconds(comm::Operation::ReduceScatter));
  const StepBytes bytes = steps.bytes(layout);
  EXPECT_DOUBLE_EQ(bytes.parameters, 2 * (dense / ranks + experts / (ranks / sharing)));
  EXPECT_DOUBLE_EQ(bytes.optimizer, 12 * (dense / ranks + experts / (ranks / sharing)));
  EXPECT_DOUBLE_EQ(steps.predict(layout).seconds.optimizer,
                   (2 + 2 * 12 + 2) * (dense / ranks + experts / (ranks / sharing)) / cluster.device.memory_bandwidth);
}

// As for dense models, within 4 % and 1 MiB.
TEST(ExpertMemory, IsThatOfThePlan) {
  Config config;
  config.model = mixture();
  config.model.hidden_size = 512, config.model.sequence_length = 256, config.model.heads = 8;
  config.model.experts.feed_forward_size = 512;
  config.bf16.enabled = true;
  config.zero.stage3_param_persistence_threshold = 0;
  const model::Model model = model::build(config.model);
  const Cluster cluster = cluster_named("h100");
  for (const Layout& layout :
       {Layout{.data = 4, .expert = 1, .zero_stage = 1, .microbatch = 4},
        Layout{.data = 4, .expert = 2, .zero_stage = 0, .microbatch = 4},
        Layout{.data = 4, .expert = 2, .zero_stage = 1, .microbatch = 4},
        Layout{.data = 4, .expert = 4, .zero_stage = 2, .microbatch = 4},
        Layout{.data = 2, .context = 2, .expert = 2, .zero_stage = 3, .microbatch = 4},
        Layout{.data = 2, .tensor = 2, .expert = 2, .zero_stage = 3, .microbatch = 4},
        Layout{.data = 4, .expert = 4, .zero_stage = 1, .microbatch = 4, .recompute = Recompute::Full}}) {
    config.parallel.context = layout.context, config.parallel.tensor = layout.tensor;
    config.parallel.expert = layout.expert;
    config.zero.stage = layout.zero_stage;
    config.recompute = layout.recompute;
    config.batch = {.micro_batch_size = layout.microbatch, .gradient_accumulation_steps = layout.microbatches};
    const Plan plan = make_plan(config, model, static_cast<int>(layout.devices()));
    const StepBytes bytes = StepModel(model, cluster, state_types(config)).predict(layout).bytes;
    const auto near = [&](double number, MemoryCategory category) {
      const double expected = static_cast<double>(plan.heaviest().memory[category]);
      EXPECT_NEAR(number, expected, 0.04 * expected + (1 << 20)) << to_string(layout);
    };
    near(bytes.parameters, MemoryCategory::Parameters);
    near(bytes.gradients, MemoryCategory::Gradients);
    near(bytes.optimizer, MemoryCategory::Optimizer);
    near(bytes.activations, MemoryCategory::Activations);
  }
}

std::string text_of_mixture(const std::string& rest) {
  return R"({"model": {"type": "llama", "layers": 2, "hidden_size": 64, "heads": 4, "sequence_length": 64,
    "experts": {"count": 8, "per_token": 2, "feed_forward_size": 32}, "vocabulary": 128}, "train_batch_size": 16)" +
         rest + "}";
}

Config config_of_mixture(const std::string& rest) { return parse_config(text_of_mixture(rest), "mixture.json"); }

// Sizes that divide the experts and the data and context ranks, without schedules in which gradients of weights come late.
TEST(ExpertSearch, TriesRanksThatShareExperts) {
  const Config config = config_of_mixture("");
  const model::Model model = model::build(mixture());
  const Cluster cluster = cluster_named("h100");
  std::set<int64_t> sizes;
  for_each_layout(model, cluster, {.devices = 12, .train_batch_size = 24}, [&](const Layout& layout) {
    sizes.insert(layout.expert);
    EXPECT_EQ(layout.shards() % layout.expert, 0) << to_string(layout);
    EXPECT_TRUE(layout.expert == 1 || !delays_weight_gradients(layout.schedule)) << to_string(layout);
  });
  EXPECT_EQ(sizes, (std::set<int64_t>{1, 2, 4}));
  const SearchResult result = search(model, cluster, search_space(config, 8), 1000);
  EXPECT_EQ(
      result.expert,
      "2, 4, 8 ranks that share experts are tried, as far as they divide the data and context ranks; not with zero-bubble "
      "schedules, which the engine refuses, as it does device \"cuda\": GPUs do not exchange tokens of experts yet");
  EXPECT_THAT(to_text(result, cluster), HasSubstr("\nexpert    2, 4, 8 ranks that"));
  std::set<int64_t> ranked;
  for (const Candidate& candidate : result.ranking) {
    ranked.insert(candidate.layout.expert);
    const std::map<std::string, std::string> keys(candidate.config.begin(), candidate.config.end());
    EXPECT_EQ(keys.at("parallel.expert"), std::to_string(candidate.layout.expert));
    EXPECT_EQ(keys.contains("device"), candidate.layout.expert == 1);
  }
  EXPECT_EQ(ranked, (std::set<int64_t>{1, 2, 4, 8}));
  EXPECT_TRUE(std::ranges::any_of(result.alternatives, [](const Alternative& a) { return a.choice.starts_with("expert "); }));
}

TEST(ExpertSearch, ContradictsNoOtherNameOfTheKey) {
  const std::string named = R"(, "expert_parallel": {"enabled": true, "autoep_size": 2})";
  const SearchResult result =
      search(model::build(mixture()), cluster_named("h100"), search_space(config_of_mixture(named), 8), 1000);
  for (const Candidate& candidate : result.ranking) {
    std::vector<std::string> overrides;
    for (const auto& [key, value] : candidate.config) overrides.push_back(key + "=" + value);
    EXPECT_EQ(parse_config(text_of_mixture(named), "mixture.json", overrides).parallel.expert, candidate.layout.expert);
  }
}

TEST(ExpertSearch, SaysWhyNoRanksShareExperts) {
  const model::Model model = model::build(mixture());
  const Cluster cluster = cluster_named("h100");
  const auto said = [&](const std::string& rest, int64_t devices) {
    const SearchResult result = search(model, cluster, search_space(config_of_mixture(rest), devices));
    EXPECT_TRUE(std::ranges::all_of(result.ranking, [](const Candidate& c) { return c.layout.expert == 1; }));
    return result.expert;
  };
  EXPECT_EQ(
      said(R"(, "device": "cuda")", 8),
      "ranks that share experts are not tried, as they do not go together with device \"cuda\": GPUs do not exchange tokens "
      "of experts yet");
  EXPECT_THAT(said(R"(, "reproducible": "layout", "train_micro_batch_size_per_gpu": 1, "audit": {"every_steps": 5})", 8),
              HasSubstr("do not go together with audit.every_steps"));
  EXPECT_EQ(said("", 1), "");
}

}  // namespace
}  // namespace trivet::autotune
