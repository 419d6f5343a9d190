// Runs `trivet tune` and `trivet launch --autotuning` as a user does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

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
      "autotuning": {"enabled": true, "tuner_type": "gridsearch", "results_dir": "tuned/results", "exps_dir": "tuned/exps",
                     "tuner_early_stopping": 0, "num_tuning_micro_batch_sizes": 2, "start_profile_step": 2, "end_profile_step": 3}
    })");
  }

  json read(const std::string& name) const { return json::parse(folder.read(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder.at(name)); }
  // What a trial took when it was measured first, whether or not it was among the best and measured again.
  double first_seconds(const std::string& trial) const {
    const json exp = read("tuned/results/" + trial + "/exp.json");
    return exp.value("measured_seconds", json::array({exp.at("seconds")})).at(0);
  }
  // The numbered lines.
  static size_t trials_of(const std::string& text) {
    size_t lines = 0;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const size_t digit = line.find_first_not_of(' ');
      lines += digit < 4 && std::isdigit(static_cast<unsigned char>(line[digit])) ? 1 : 0;
    }
    return lines;
  }

  Folder folder;
};

TEST_F(Tune, MeasuresTheSpaceOnTheRanksThatAreThereAndLeavesWhatDeepSpeedUsersLookFor) {
  const Output output = folder.run("tune config.json --ranks 2");
  ASSERT_EQ(output.code, 0) << output.errors;
  EXPECT_EQ(trials_of(output.text), 8u) << output.text;  // 4 stages x microbatches 1 and 4
  EXPECT_THAT(output.text, HasSubstr("ended: all configs were tried"));
  EXPECT_THAT(output.text, testing::ContainsRegex("best  z[^,]*, [0-9.]+ ms a step \\(3 measurements: "));
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

TEST_F(Tune, ContinuesAfterTheTrialsThatEnded) {
  ASSERT_EQ(folder.run("tune config.json --ranks 2 --cluster h100 --set autotuning.tuner_num_trials=3").code, 0);
  const double first = first_seconds("z0_gas4_tmbspg1");
  std::filesystem::remove(folder.at("tuned/results/z0_gas1_tmbspg4/exp.json"));  // as if it had been interrupted
  const Output second = folder.run("tune config.json --ranks 2 --cluster h100 --resume");
  EXPECT_EQ(second.code, 0) << second.errors;
  EXPECT_EQ(trials_of(second.text), 6u);
  EXPECT_THAT(second.text, HasSubstr("reused from an earlier tuning: 2 trials\n"));
  EXPECT_EQ(first_seconds("z0_gas4_tmbspg1"), first);
  EXPECT_THAT(folder.read("tuned/results/summary.txt"), HasSubstr("reused from an earlier tuning 2\n"));
  // All trials that ended count, whichever would be tried first.
  const std::string best = folder.read("tuned/results/ds_config_optimal.json");
  const Output none = folder.run(
      "tune config.json --ranks 2 --cluster h100 --resume --set autotuning.tuner_num_trials=1 --set "
      "autotuning.tuner_type=random");
  EXPECT_EQ(none.code, 0) << none.errors;
  EXPECT_EQ(trials_of(none.text), 0u);
  EXPECT_EQ(folder.read("tuned/results/ds_config_optimal.json"), best);
  // Nothing is reused if the model is a different one or the results are overwritten.
  folder.run("tune config.json --ranks 2 --cluster h100 --resume --set model.layers=1 --set autotuning.tuner_num_trials=2");
  EXPECT_THAT(folder.read("tuned/results/summary.txt"), HasSubstr("reused from an earlier tuning 0\n"));
  folder.run("tune config.json --ranks 2 --cluster h100 --set model.layers=1 --set autotuning.tuner_num_trials=2");
  EXPECT_THAT(folder.read("tuned/results/summary.txt"), HasSubstr("reused from an earlier tuning 0\n"));
  EXPECT_FALSE(exists("tuned/results/z3_gas1_tmbspg4"));
}

TEST_F(Tune, EveryTunerAndMetricRunsAndStopsEarly) {
  for (const char* tuner : {"random", "model_based"})
    for (const char* metric : {"latency", "flops"}) {
      const Output output = folder.run(std::string("tune config.json --ranks 2 --cluster h100 --set autotuning.tuner_type=") +
                                       tuner + " --set autotuning.metric=" + metric +
                                       " --set autotuning.fast=false --set autotuning.tuner_early_stopping=2");
      EXPECT_EQ(output.code, 0) << output.errors;
      EXPECT_THAT(output.text, HasSubstr("ended: 2 trials in a row were not better (autotuning.tuner_early_stopping)"));
      double best = 1e9;
      const auto trial_of = [](const auto& entry) { return "tuned/results/" + entry.path().filename().string(); };
      for (const auto& entry : std::filesystem::directory_iterator(folder.at("tuned/results")))
        if (entry.is_directory() && read(trial_of(entry) + "/exp.json").contains("measured_seconds"))
          best = std::min(best, read(trial_of(entry) + "/metrics.json").at("latency").get<double>());
      const std::string shown = output.text.substr(output.text.find("best  z"));
      EXPECT_THAT(shown, HasSubstr(fmt::format(", {:.2f} ms a step", best * 1e3)));  // one batch size: the shortest step wins
    }
}

TEST_F(Tune, OnALargerDescribedMachineTheOrderIsThatOfItsModel) {
  const Output output = folder.run(
      "tune config.json --ranks 2 --cluster h100 --set autotuning.tuner_type=model_based --set autotuning.tuner_num_trials=2");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_EQ(trials_of(output.text), 2u);
  EXPECT_THAT(
      folder.run("tune config.json --ranks 2 --seconds 1").errors,
      HasSubstr("--seconds: sets how long autotuning.tuner_type \"model_based\" measures, but this config has \"gridsearch\""));
  const Output unknown = folder.run("tune config.json --ranks 2 --cluster nowhere");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("nowhere"));
}

TEST_F(Tune, WhatCannotBeTunedIsRefusedByKey) {
  const auto refusal = [&](const std::string& set) {
    const Output output = folder.run("tune config.json --ranks 2 --set " + set);
    EXPECT_EQ(output.code, 2) << output.text;
    return output.errors;
  };
  EXPECT_THAT(refusal("autotuning.enabled=false"),
              HasSubstr("autotuning.enabled: false contradicts `trivet tune`; remove it or use true"));
  EXPECT_THAT(refusal("autotuning.mp_size=3"), HasSubstr("autotuning.mp_size: no mesh of 2 ranks has tensor x pipeline 3"));
  EXPECT_THAT(
      refusal("autotuning.tuner_type=genetic"),
      HasSubstr("autotuning.tuner_type: \"genetic\" is not accepted; use one of \"gridsearch\", \"random\", \"model_based\""));
  EXPECT_THAT(refusal("autotuning.min_train_micro_batch_size_per_gpu=16"),
              HasSubstr("autotuning: no config is left to try; widen min_ and max_train_micro_batch_size_per_gpu"));
  EXPECT_THAT(refusal("'elasticity={\"enabled\": true, \"max_train_batch_size\": 8, \"micro_batch_sizes\": [1, 2]}'"),
              HasSubstr("elasticity.enabled: true is not accepted by trivet tune, which chooses the batch itself"));
  EXPECT_THAT(refusal("autotuning.results_dir=config.json/x"), HasSubstr("autotuning: results cannot be written: "));
}

TEST_F(Tune, TheSectionDoesNothingToATrainingRun) {
  const Output output = folder.run("train config.json --ranks 2");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("keys (`trivet config check` says why): autotuning.enabled, autotuning.tuner_type, "));
  EXPECT_THAT(folder.run("config check config.json").text,
              HasSubstr("autotuning.enabled: takes effect only when `trivet tune` runs"));
  EXPECT_FALSE(exists("tuned"));
}

TEST_F(Tune, TheLauncherTunesAndThenTrainsOnTheSameSlots) {
  const std::string job =
      std::string(TRIVET_BINARY_DIR) + "/trivet train config.json --set autotuning.tuner_num_trials=2 --set=training.steps=3";
  const Output tuned = folder.run("launch --num_gpus 2 --autotuning tune " + job);
  EXPECT_EQ(tuned.code, 0) << tuned.errors;
  EXPECT_THAT(tuned.text, HasSubstr("best  z")) << tuned.errors;
  EXPECT_EQ(folder.read("tuned/results/cmd_optimal.txt"),
            "trivet launch --num_gpus 2 trivet train tuned/results/ds_config_optimal.json\n");
  ASSERT_EQ(folder.run("tune config.json --set autotuning.tuner_num_trials=1 --set \"autotuning.results_dir=a b\"").code, 0);
  EXPECT_EQ(folder.read("a b/cmd_optimal.txt"), "trivet train 'a b/ds_config_optimal.json'\n");
  const Output both = folder.run("launch --num_gpus 2 --autotuning run " + job + " --metrics losses.jsonl");
  EXPECT_EQ(both.code, 0) << both.errors;
  const std::string losses = folder.read("losses.jsonl");
  EXPECT_EQ(std::ranges::count(losses, '\n'), 3) << both.text << both.errors;
  EXPECT_EQ(read("tuned/results/ds_config_optimal.json").at("training").at("steps"), 3);
  const Output dry = folder.run("launch --num_gpus 2 --autotuning run --dry-run " + job + " --metrics losses.jsonl");
  EXPECT_THAT(dry.text, HasSubstr("/trivet tune config.json --set autotuning.tuner_num_trials=2 --set training.steps=3\n"));
  EXPECT_THAT(dry.text, HasSubstr("/trivet train tuned/results/ds_config_optimal.json --metrics losses.jsonl\n"));
}

// The names of the flags of `trivet train`, from its help; flags with several names once.
std::vector<std::string> flags_of_train(const Folder& folder) {
  const std::string help = folder.run("train --help").text;
  std::vector<std::string> flags;
  for (size_t at = 0; (at = help.find("\n  --", at)) != std::string::npos; at += 5)
    flags.push_back(help.substr(at + 3, help.find_first_of(" ,\n", at + 3) - at - 3));
  return flags;
}

TEST_F(Tune, EveryFlagOfTheTrainingGoesToTheTuningOrToTheTrainingOrIsRefused) {
  const std::string job = " --dry-run " TRIVET_BINARY_DIR "/trivet train config.json ";
  const auto launched = [&](const char* how, const std::string& flags) {
    return folder.run(std::string("launch --num_gpus 2 --autotuning ") + how + job + flags);
  };
  // Every flag that there is has its place, also one that is new.
  const std::vector<std::string> flags = flags_of_train(folder);
  EXPECT_THAT(flags, testing::IsSupersetOf({"--ranks", "--set", "--ddp", "--metrics", "--serve", "--init-from", "--resume"}));
  for (const std::string& flag : flags) {
    if (flag == "--help") continue;
    EXPECT_THAT(launched("run", flag + "=x").errors, Not(HasSubstr("is not a flag"))) << flag;
  }
  // To both.
  for (const std::string flag : {"--ranks 2", "--ranks=2", "--init-from weights"}) {
    const std::string text = launched("run", flag).text;
    EXPECT_THAT(text, HasSubstr("/trivet tune config.json " + flag + "\n"));
    EXPECT_THAT(text, HasSubstr("/trivet train tuned/results/ds_config_optimal.json " + flag + "\n"));
    EXPECT_THAT(launched("tune", flag).text, HasSubstr("/trivet tune config.json " + flag + "\n"));
  }
  // To the training; a value that may be left out is not taken for a flag, nor the next flag for a value.
  for (const std::string flag : {"--metrics m.jsonl", "--serve", "--serve 8080", "--serve=8080", "--resume", "--resume other",
                                 "--serve --resume", "--resume other --serve --metrics=m"}) {
    const std::string text = launched("run", flag).text;
    EXPECT_THAT(text, HasSubstr("/trivet tune config.json\n")) << flag;
    EXPECT_THAT(text, HasSubstr("/trivet train tuned/results/ds_config_optimal.json " + flag + "\n"));
    const Output refused = launched("tune", flag);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.errors, HasSubstr("--autotuning tune: \"" + flag.substr(0, flag.find_first_of(" =")) +
                                          "\": the job only tunes, so this would have no effect; leave it out"));
  }
  const std::pair<const char*, const char*> refusals[] = {
      {"--ddp", "--autotuning: --ddp: it fixes the layout that tuning searches; leave one of the two out"},
      {"--deepspeed_config other.json", "--autotuning: --deepspeed_config: the config is already given; name one"},
      {"--set", "--autotuning: --set: a value is missing"},
      {"--metric m", "--autotuning: \"--metric\" is not a flag of trivet train"},
      {"--ddp=1 other.json", "--autotuning: --ddp: "},
      {"other.json", "--autotuning: \"other.json\" is not a flag of trivet train"}};
  for (const auto& [flag, message] : refusals)
    for (const char* how : {"tune", "run"}) {
      const Output output = launched(how, flag);
      EXPECT_EQ(output.code, 2);
      EXPECT_THAT(output.errors, HasSubstr(message)) << flag;
    }
}

TEST_F(Tune, ATrainingThatCannotBeTunedIsNotStarted) {
  const Output output = folder.run("launch --num_gpus 2 --autotuning run " TRIVET_BINARY_DIR
                                   "/trivet train config.json --set autotuning.enabled=false --metrics losses.jsonl");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, HasSubstr("autotuning.enabled: false contradicts `trivet tune`"));
  EXPECT_FALSE(exists("losses.jsonl"));
}

}  // namespace
}  // namespace trivet::test
