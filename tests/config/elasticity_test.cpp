// The section "elasticity": the batches that DeepSpeed chooses (tests/golden/elasticity_reference.py), and what ranks do with
// them.
#include "engine/config/elasticity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "engine/config/config.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

std::string solved(const Config& config, int64_t data_parallel_size) {
  try {
    const ResolvedBatch b = resolve_batch(config.batch, data_parallel_size, "a.json");
    return fmt::format("{} = {} x {}", b.train_batch_size, b.micro_batch_size, b.gradient_accumulation_steps);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Elasticity, ChoosesTheBatchesOfDeepSpeed) {
  std::istringstream lines(read_file(TRIVET_SOURCE_DIR "/tests/golden/elasticity.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto expected = nlohmann::json::parse(line);
    const auto& section = expected.at("elasticity");
    const ElasticBatch chosen = elastic_batch({.enabled = true,
                                               .max_train_batch_size = section.at("max_train_batch_size"),
                                               .micro_batch_sizes = section.at("micro_batch_sizes"),
                                               .min_gpus = section.at("min_gpus"),
                                               .max_gpus = section.at("max_gpus"),
                                               .num_gpus_per_node = section.value("num_gpus_per_node", 1),
                                               .model_parallel_size = section.value("model_parallel_size", 1),
                                               .version = section.at("version"),
                                               .prefer_larger_batch = section.at("prefer_larger_batch")});
    EXPECT_EQ(chosen.train_batch_size, expected.at("train_batch_size")) << line;
    EXPECT_EQ(chosen.data_parallel_sizes, expected.at("data_parallel_sizes")) << line;
  }
  EXPECT_EQ(count, 200);
}

TEST(Elasticity, NeverExceedsTheLargestBatch) {
  // The least common multiple of the microbatches, 1001, is more.
  const ElasticBatch chosen = elastic_batch({.max_train_batch_size = 100, .micro_batch_sizes = {7, 11, 13}});
  EXPECT_LE(chosen.train_batch_size, 100);
  EXPECT_GT(chosen.train_batch_size, 0);
}

TEST(Elasticity, EachNumberOfRanksTrainsTheSameBatchWithTheLargestMicrobatchThatFits) {
  const Config config = parse_config(
      R"({"elasticity": {"enabled": true, "max_train_batch_size": 50, "micro_batch_sizes": [3, 2, 4], "max_gpus": 30}})",
      "a.json");
  // 48 = 4 x 12 = 3 x 16 = 2 x 24
  EXPECT_EQ(solved(config, 1), "48 = 4 x 12");
  EXPECT_EQ(solved(config, 3), "48 = 4 x 4");
  EXPECT_EQ(solved(config, 8), "48 = 3 x 2");
  EXPECT_EQ(solved(config, 24), "48 = 2 x 1");
  EXPECT_EQ(
      solved(config, 5),
      "a.json: elasticity: the data-parallel size 5 cannot train the batch of 48 samples; use one of 1, 2, 3, 4, 6, 8, 12, 16, "
      "24, or other elasticity.micro_batch_sizes");
}

TEST(Elasticity, OneMicrobatchSuitsLayoutMode) {
  const std::string section = R"("elasticity": {"enabled": true, "max_train_batch_size": 16, "micro_batch_sizes": [2]})";
  const Config config = parse_config("{\"reproducible\": \"layout\", " + section + "}", "a.json");
  EXPECT_EQ(solved(config, 2), "12 = 2 x 3");
  EXPECT_EQ(solved(config, 6), "12 = 2 x 1");
}

TEST(Elasticity, HostsWithTwoModelParallelRanks) {
  const Config config = parse_config(R"({"parallel": {"tensor": 2}, "elasticity": {"enabled": true, "max_train_batch_size": 24,
      "micro_batch_sizes": [2], "num_gpus_per_node": 4, "model_parallel_size": 2, "max_gpus": 100}})",
                                     "a.json");
  // 6 microbatches of 2 on each half of a host: 1, 2, 3 or 6 hosts with 2 data-parallel ranks each.
  EXPECT_EQ(solved(config, 2), "24 = 2 x 6");
  EXPECT_EQ(solved(config, 12), "24 = 2 x 1");
  EXPECT_NE(solved(config, 3).find("use one of 2, 4, 6, 12"), std::string::npos) << solved(config, 3);
}

// The batch is the same with and without; a number of ranks must also be one that expert ranks divide.
TEST(Elasticity, RanksAreDividedByThoseThatShareExperts) {
  const std::string model = R"("model": {"type": "llama", "experts": {"count": 60, "per_token": 2}})";
  const auto config = [&](int expert, int context) {
    return parse_config(fmt::format(R"({{{}, "parallel": {{"expert": {}, "context": {}}}, "elasticity": {{"enabled": true,
                                        "max_train_batch_size": 50, "micro_batch_sizes": [3, 2, 4], "max_gpus": 30,
                                        "num_gpus_per_node": {}, "model_parallel_size": {}}}}})",
                                    model, expert, context, context, context),
                        "a.json");
  };
  EXPECT_NE(solved(config(4, 1), 6).find("6 cannot train the batch of 48 samples; use one of 4, 8, 12, 16, 24, or"),
            std::string::npos);
  EXPECT_NE(solved(config(4, 2), 3).find("use one of 2, 4, 6, 8, 12, or"), std::string::npos) << solved(config(4, 2), 3);
  EXPECT_THAT([&] { config(5, 1); }, testing::ThrowsMessage<ConfigError>(
                                         testing::HasSubstr("parallel.expert: 5 divides no number of data and context ranks")));
}

TEST(Elasticity, OtherBatchKeysMayNotContradictIt) {
  const std::string section = R"("elasticity": {"enabled": true, "max_train_batch_size": 16, "micro_batch_sizes": [2]})";
  EXPECT_EQ(refusal("{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, " + section + "}"), "accepted");
  EXPECT_EQ(
      refusal("{\"train_batch_size\": 8, " + section + "}"),
      "bad.json:1:2: train_batch_size: 8 is not accepted with elasticity, which chooses the batch (12); remove it, or set "
      "elasticity.ignore_non_elastic_batch_info");
  EXPECT_NE(
      refusal("{\"gradient_accumulation_steps\": 1, " + section + "}").find("gradient_accumulation_steps: 1 is not accepted"),
      std::string::npos);
  const Config ignoring =
      parse_config("{\"train_batch_size\": 8, " + section + "}", "a.json", {"elasticity.ignore_non_elastic_batch_info=true"});
  EXPECT_EQ(solved(ignoring, 2), "12 = 2 x 3");
  EXPECT_EQ(accepted_without_effect(ignoring),
            std::vector<std::string>{"train_batch_size: takes effect only when elasticity is not enabled"});
}

TEST(Elasticity, SaysWhatIsWrong) {
  const auto with = [](const std::string& keys) {
    return refusal(R"({"elasticity": {"enabled": true, "max_train_batch_size": 16, "micro_batch_sizes": [2, 4]}})",
                   {keys.substr(0, keys.find(' ')), keys.substr(keys.find(' ') + 1)});
  };
  const auto has = [&](const std::string& keys, const std::string& part) {
    EXPECT_NE(with(keys).find(part), std::string::npos) << with(keys);
  };
  has("elasticity.min_gpus=9 elasticity.max_gpus=8", "elasticity.min_gpus: 9 is more than elasticity.max_gpus 8");
  has("elasticity.min_gpus=9 elasticity.max_gpus=99", "16 allows no batch for 9 to 99 ranks with microbatches of 2, 4");
  has("elasticity.max_train_batch_size=3 steps_per_print=1",
      "elasticity.micro_batch_sizes: 4 is more than elasticity.max_train_batch_size 3");
  has("parallel.tensor=2 steps_per_print=1",
      "elasticity.model_parallel_size: 1 is not parallel.tensor 2 x parallel.pipeline 1");
  has("elasticity.version=0.1 steps_per_print=1", "accepted");
  has("elasticity.version=0.3 steps_per_print=1", "0.3 is not accepted; use 0.1 or 0.2");
  has("elasticity.micro_batch_sizes=[0] steps_per_print=1", "[0] is not accepted; use a list of integers from 1");
  has("elasticity.num_gpus_per_node=3 elasticity.model_parallel_size=2",
      "elasticity.model_parallel_size: 2 is not parallel.tensor 1");
}

}  // namespace
}  // namespace trivet
