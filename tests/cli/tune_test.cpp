// `trivet tune` and `trivet launch --autotuning` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Tune : public testing::Test {
 protected:
  Tune() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({  // a comment
      "model": {"type": "gpt", "layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": 8, "vocabulary": "characters"},
      "data": {"train": "text.txt", "validation_fraction": 0.1},
      "training": {"steps": 2, "seed": 3},
      "train_batch_size": 8,
      "parallel": {"tensor": 1, "pipeline": 1},
      "autotuning": {"enabled": true, "results_dir": "tuned/results", "exps_dir": "tuned/exps", "tuner_early_stopping": 0,
                     "num_tuning_micro_batch_sizes": 2, "start_profile_step": 2, "end_profile_step": 3}
    })");
  }

  json read(const std::string& name) const { return json::parse(folder.read(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder.at(name)); }
  size_t trials_of(const std::string& text) const { return static_cast<size_t>(std::ranges::count(text, '\n')) - 2; }

  Folder folder;
};

TEST_F(Tune, MeasuresTheSpaceOnTheRanksThatAreThereAndLeavesWhatDeepSpeedUsersLookFor) {
  const Output output = folder.run("tune config.json --ranks 2");
  ASSERT_EQ(output.code, 0) << output.errors;
  EXPECT_EQ(trials_of(output.text), 8u) << output.text;  // 4 stages x microbatches 1 and 4
  EXPECT_THAT(output.text, HasSubstr("ended: all configs were tried"));
  for (const char* name : {"z0_gas4_tmbspg1", "z0_gas1_tmbspg4", "z3_gas1_tmbspg4"}) {
    const std::string trial = std::string("tuned/results/") + name;
    EXPECT_EQ(read(std::string("tuned/exps/") + name + ".json").at("name"), name);
    EXPECT_EQ(read(trial + "/exp.json").at("status"), "ok");
    const double latency = read(trial + "/metrics.json").at("latency");
    EXPECT_GT(latency, 0);
    EXPECT_NEAR(read(trial + "/metrics.json").at("throughput").get<double>() * latency, 8, 1e-9);
    EXPECT_EQ(read(trial + "/ds_config.json").at("train_batch_size"), 8);
    EXPECT_FALSE(exists(trial + "/stderr.log"));
  }
  EXPECT_EQ(read("tuned/results/z2_gas4_tmbspg1/ds_config.json").at("zero_optimization").at("stage"), 2);
  EXPECT_THAT(folder.read("tuned/results/summary.txt"), HasSubstr("\nglobal                        8"));
  EXPECT_THAT(folder.read("tuned/results/report.html"), HasSubstr("<svg"));
  EXPECT_FALSE(read("tuned/results/ds_config_optimal.json").contains("autotuning"));
  EXPECT_EQ(folder.read("tuned/results/cmd_optimal.txt"), "trivet train tuned/results/ds_config_optimal.json --ranks 2\n");
  const Output trained = folder.run("train tuned/results/ds_config_optimal.json --ranks 2");
  EXPECT_EQ(trained.code, 0) << trained.errors;
  EXPECT_THAT(trained.text, Not(HasSubstr("no effect")));
}

}  // namespace
}  // namespace trivet::test
