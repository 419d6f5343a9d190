// `trivet plan --search`, `trivet estimate` and `trivet doctor` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;

class Planning : public testing::Test {
 protected:
  Planning() {
    folder.write("llama.json", R"({
      "model": {"type": "llama", "layers": 32, "hidden_size": 4096, "heads": 32, "key_value_heads": 8, "feed_forward_size": 14336,
                "sequence_length": 8192, "vocabulary": 128256},
      "data": {"train": "tokens.bin"}, "training": {"steps": 1}, "train_batch_size": 256, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.0003}}
    })");
  }
  void refused(const std::string& arguments, int code, const std::string& message) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, code) << arguments;
    EXPECT_THAT(output.errors, HasSubstr(message));
  }
  Folder folder;
};

TEST_F(Planning, SearchRanksLayoutsAndSaysWhyTheOthersLose) {
  const Output output = folder.run("plan llama.json --world-size 64 --cluster h100 --search --top 3");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("cluster   h100: NVIDIA H100 SXM 80 GB"));
  EXPECT_THAT(output.text, HasSubstr("why not\n"));
  EXPECT_THAT(output.text, HasSubstr("% slower: "));
  const Output json = folder.run("plan llama.json --world-size 64 --cluster h100 --search --top 3 --json");
  const auto data = nlohmann::json::parse(json.text);
  ASSERT_EQ(data["ranking"].size(), 3);
  const auto& mesh = data["ranking"][0]["mesh"];
  EXPECT_EQ(mesh["pipeline"].get<int>() * mesh["data"].get<int>() * mesh["tensor"].get<int>(), 64);
  EXPECT_LE(data["ranking"][0]["step_seconds"].get<double>(), data["ranking"][1]["step_seconds"].get<double>());
  EXPECT_GT(data["ranking"][0]["model_flops_utilization"].get<double>(), 0.2);
}

TEST_F(Planning, SearchTakesAClusterFromAFile) {
  folder.write("ours.json", R"({"like": "h200", "name": "ours", "nodes": 4, "price_per_device_hour": 2})");
  const Output output = folder.run("plan llama.json --world-size 32 --cluster ours.json --search");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("cluster   ours: NVIDIA H200"));
  EXPECT_THAT(output.text, HasSubstr("for a million tokens, at 2 a device and hour"));
  refused("plan llama.json --world-size 64 --cluster ours.json --search", 2,
          "search: 64 devices are more than cluster \"ours\" has (4 nodes of 8); use at most 32");
}

TEST_F(Planning, SearchRefusesWhatItCannotAnswer) {
  refused("plan llama.json --world-size 8 --search", 2, "--search: needs --cluster, the machines to search for: \"a100\"");
  refused("plan llama.json --world-size 8 --cluster h100", 2, "--cluster: is for --search; give both");
  refused("plan llama.json --world-size 8 --cluster h300 --search", 2,
          "cluster: \"h300\" is neither a file nor one of \"a100\"");
  refused("plan llama.json --world-size 35 --cluster h100 --search --set train_batch_size=16", 2,
          "search: no layout divides 35 devices among 34 blocks and a batch of 16");
  refused("plan llama.json --world-size 1 --cluster a100-40 --search", 19,
          "--search: no layout of 1 devices fits; the least is pipeline 1 x data 1 x tensor 1");
}

TEST_F(Planning, EstimateSaysWhatDeepSpeedsEstimatorsSay) {
  const Output output = folder.run("estimate --parameters 2851e6 --largest-layer 32e6 --gpus-per-node 8");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text,
              HasSubstr("    3         71.69         0.12   offload_param=cpu, offload_optimizer=cpu, zero_init=1\n"));
  EXPECT_THAT(output.text, HasSubstr("    2        127.45        11.28   offload_optimizer=none\n"));
  // Of the config's model the largest module is an embedding: 128256 x 4096.
  const auto data = nlohmann::json::parse(folder.run("estimate llama.json --json").text);
  EXPECT_EQ(data["largest_layer_parameters"].get<double>(), 128256.0 * 4096);
  EXPECT_NEAR(data["parameters"].get<double>(), 8.03e9, 0.01e9);
  EXPECT_EQ(data["estimates"].size(), 8);
  refused("estimate", 2, "estimate: give either a config or --parameters, and with these --largest-layer");
  refused("estimate llama.json --parameters 5", 2, "estimate: give either a config or --parameters");
}

TEST_F(Planning, DoctorSaysWhatIsThereAndWhatIsMissing) {
  const Output output = folder.run("doctor --quick");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("processor "));
  EXPECT_THAT(output.text, HasSubstr("GiB free in ."));
  const auto data = nlohmann::json::parse(folder.run("doctor --quick --json").text);
  ASSERT_EQ(data.size(), 6);
  EXPECT_EQ(data[1]["subject"], "memory");
  EXPECT_GT(data[1]["total_bytes"].get<double>(), 1e8);
  refused("doctor --quick --directory /nowhere", 2, "doctor: disk: ");
}

}  // namespace
}  // namespace trivet::test
