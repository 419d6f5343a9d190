#include "autotune/tune/described_predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/config/load.h"
#include "engine/plan.h"

namespace trivet::autotune {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<Finding> measured() {
  return {{.subject = "products", .figures = {{"float32_flops_per_second", 2e11}, {"bfloat16_flops_per_second", 8e11}}},
          {.subject = "memory", .figures = {{"free_bytes", 8e9}, {"copy_bytes_per_second", 2e10}}},
          {.subject = "ranks", .figures = {{"all_reduce_bytes_per_second", 4e9}}}};
}

TEST(HostCluster, SharesTheHostOutAmongItsRanks) {
  const Cluster host = host_cluster(measured(), 4);
  EXPECT_EQ(host.devices_per_node, 4);
  EXPECT_EQ(host.device.float32_flops, 5e10);
  EXPECT_EQ(host.device.matrix_flops, 2e11);
  EXPECT_EQ(host.device.memory_bandwidth, 5e9);
  EXPECT_EQ(host.device.memory_bytes, 2'000'000'000);
  EXPECT_EQ(host.inside.beta, 1 / 4e9);
}

TEST(HostCluster, AHostThatCouldNotBeMeasuredIsRefused) {
  std::vector<Finding> findings = measured();
  findings.pop_back();
  EXPECT_THAT([&] { host_cluster(findings, 2); },
              ThrowsMessage<ConfigError>(HasSubstr("this host could not be measured (all_reduce_bytes_per_second)")));
}

TEST(DescribedPredictor, OrdersConfigsByWhatTheyCompute) {
  const auto config = [](const std::string& rest) {
    return parse_config(R"({"train_batch_size": 16, "model": {"layers": 4, "hidden_size": 64, "heads": 4}, )" + rest + "}",
                        "a");
  };
  const Config plain = config(R"("train_micro_batch_size_per_gpu": 2)");
  const auto predictor = make_described_predictor(plain, model::with_vocabulary(plain.model, 256), host_cluster(measured(), 4));
  const double seconds = predictor->seconds(plain, 4);
  EXPECT_GT(seconds, 0);
  EXPECT_EQ(predictor->seconds(plain, 4), seconds);
  EXPECT_GT(
      predictor->seconds(config(R"("train_micro_batch_size_per_gpu": 2, "activation_checkpointing": {"mode": "full"})"), 4),
      1.15 * seconds);  // the second forward is a third more work
  EXPECT_GT(predictor->seconds(plain, 2), 1.5 * seconds);
  const std::string pipeline = R"("parallel": {"pipeline": 4}, "train_micro_batch_size_per_gpu": )";
  EXPECT_LT(predictor->seconds(config(pipeline + "1"), 4), predictor->seconds(config(pipeline + "16"), 4));  // bubble
}

}  // namespace
}  // namespace trivet::autotune
