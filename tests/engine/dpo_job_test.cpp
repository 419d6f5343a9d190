// Whole training jobs on pairs of answers: what they report, and that a resumed job compares answers with the weights that the
// first one began with.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "comm/world.h"
#include "core/error.h"
#include "core/file_system.h"
#include "data/training_data.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "tests/support/temporary_folder.h"
#include "trainer/open_data.h"
#include "trainer/pair_references.h"
#include "trainer/replay.h"
#include "trainer/trainer.h"

namespace trivet {
namespace {

using testing::HasSubstr;

class DpoJob : public testing::Test {
 protected:
  DpoJob() {
    std::string lines;
    for (int i = 0; i < 20; ++i)
      lines +=
          fmt::format("{{\"prompt\": \"{0}+{1}=\", \"chosen\": \"{2}\", \"rejected\": \"{3} no\"}}\n", i, i % 7, i + i % 7, i);
    folder.write("pairs.jsonl", lines);
  }

  Config config(const std::vector<std::string>& further = {}) const {
    std::vector<std::string> keys{"checkpoint.directory=" + folder.at("steps")};
    keys.insert(keys.end(), further.begin(), further.end());
    return parse_config(fmt::format(R"({{"model": {{"layers": 1, "hidden_size": 8, "heads": 2, "sequence_length": 12}},
                         "data": {{"train": "{}", "validation_fraction": 0.2}}, "reproducible": "layout",
                         "training": {{"objective": "dpo", "steps": 6, "evaluate_every": 3}}, "dpo": {{"beta": 0.5}},
                         "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1000000,
                         "checkpoint": {{"every_steps": 3}}, "optimizer": {{"params": {{"lr": 0.01}}}}}})",
                                    folder.at("pairs.jsonl")),
                        "job", keys);
  }

  struct Lines {
    std::vector<nlohmann::json> steps, evaluations;
  };
  Lines train(const Config& config, int ranks = 1, TrainOptions options = {}) const {
    options.config_text = explain_as_json(config);
    testing::internal::CaptureStdout();
    try {
      comm::run_threads(ranks, [&](comm::World& world) {
        TrainOptions mine = options;
        if (world.rank() == 0) mine.metrics_file = folder.at("metrics.jsonl");
        trivet::train(config, world, mine);
      });
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    testing::internal::GetCapturedStdout();
    const auto read = [&](const std::string& name) {
      std::vector<nlohmann::json> lines;
      std::istringstream text(folder.read(name));
      for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
      std::filesystem::remove(folder.at(name));
      return lines;
    };
    return {read("metrics.jsonl"), read("metrics.evaluation.jsonl")};
  }
  template <typename ErrorKind = ConfigError>
  std::string refusal(const Config& config, const TrainOptions& options) const {
    try {
      train(config, 1, options);
      return "no error";
    } catch (const ErrorKind& error) {
      return error.what();
    }
  }

  // Compares a whole run with one that stops and goes on, on several layouts, and returns what the whole one reports.
  Lines expect_resumes(const std::vector<std::string>& further) const;

  // What must be the same in two runs.
  static std::string facts_of(const nlohmann::json& line) {
    std::string facts;
    for (const char* key : {"step", "loss_bits", "correct", "rewards/chosen", "rewards/rejected", "rewards/margins", "pairs"})
      facts += line.at(key).dump() + " ";
    return facts;
  }

  const test::TemporaryFolder folder;
};

TEST_F(DpoJob, ReportsRewardsAndAccuracyAndBeginsWithMarginsOfZero) {
  const Lines lines = train(config());
  ASSERT_EQ(lines.steps.size(), 6u);
  const nlohmann::json &first = lines.steps.front(), &last = lines.steps.back();
  EXPECT_EQ(first.at("loss").get<double>(), std::log(2.0));
  EXPECT_EQ(first.at("rewards/chosen").get<double>(), 0);
  EXPECT_EQ(first.at("pairs").get<int64_t>(), 4);
  EXPECT_EQ(first.at("correct").get<int64_t>(), 0);
  EXPECT_GT(last.at("rewards/margins").get<double>(), 0);
  EXPECT_EQ(last.at("rewards/margins").get<double>(),
            last.at("rewards/chosen").get<double>() - last.at("rewards/rejected").get<double>());
  EXPECT_EQ(last.at("rewards/accuracies").get<double>(), last.at("correct").get<double>() / 4);
  ASSERT_EQ(lines.evaluations.size(), 2u);
  EXPECT_EQ(lines.evaluations[1].at("pairs").get<int64_t>(), 4);
  EXPECT_LT(lines.evaluations[1].at("loss").get<double>(), std::log(2.0));
  EXPECT_GT(lines.evaluations[1].at("rewards/margins").get<double>(), 0);
}

// Each context rank has a part of every answer; the reference model's probabilities are those of whole ones.
TEST_F(DpoJob, OnContextRanksBeginsWithMarginsOfZeroToo) {
  const Lines one = train(config({"parallel.context_grain=2"}));
  const Lines two =
      train(config({"parallel.context_grain=2", "parallel.context=2", "checkpoint.directory=" + folder.at("two")}), 2);
  EXPECT_EQ(two.steps.front().at("loss").get<double>(), std::log(2.0));
  for (size_t i = 0; i < one.steps.size(); ++i) EXPECT_EQ(facts_of(two.steps[i]), facts_of(one.steps[i]));
}

TEST_F(DpoJob, ResumesWithTheReferenceOfItsBeginningOnAnotherLayout) { expect_resumes({}); }

// The 16 training pairs of at most 9 tokens are packed into rows of 24.
TEST_F(DpoJob, OfPackedPairsResumesOnAnotherLayoutAndCountsPairs) {
  const std::vector<std::string> packed{"data.packing=isolated", "model.sequence_length=24", "train_batch_size=2"};
  const Lines whole = expect_resumes(packed);
  EXPECT_DOUBLE_EQ(whole.steps.front().at("loss").get<double>(), std::log(2.0));
  int64_t pairs = 0;
  for (const nlohmann::json& step : whole.steps) {
    pairs += step.at("pairs").get<int64_t>();
    EXPECT_EQ(step.at("rewards/accuracies").get<double>(), step.at("correct").get<double>() / step.at("pairs").get<double>());
  }
  EXPECT_GT(pairs, 2 * 6) << "more pairs than samples";
  EXPECT_EQ(whole.evaluations.front().at("pairs").get<int64_t>(), 4);
  EXPECT_GT(whole.evaluations.back().at("rewards/margins").get<double>(), 0);
  std::string result;
  comm::run_threads(1, [&](comm::World& world) { result = replay(config(packed), world, {.step = 6}); });
  EXPECT_THAT(result, HasSubstr("tensors are equal to"));
  EXPECT_THAT(refusal<Error>(config({"model.sequence_length=24", "train_batch_size=2"}), {.resume = true}),
              HasSubstr("data.packing: \"auto\" does not match"));
}

DpoJob::Lines DpoJob::expect_resumes(const std::vector<std::string>& further) const {
  const auto with = [&](std::vector<std::string> keys) {
    keys.insert(keys.begin(), further.begin(), further.end());
    return config(keys);
  };
  const Lines whole = train(with({}));
  train(with({"training.steps=3", "checkpoint.directory=" + folder.at("half")}));
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"zero_optimization.stage=3"}}, {8, {"parallel.pipeline=2", "parallel.tensor=2"}}}) {
    std::vector<std::string> keys = layout;
    keys.push_back("checkpoint.directory=" + folder.at("on" + std::to_string(ranks)));
    const Lines rest = train(with(keys), ranks, {.resume = true, .resume_directory = folder.at("half")});
    EXPECT_EQ(rest.steps.size(), 3u);
    for (size_t i = 0; i < rest.steps.size(); ++i) EXPECT_EQ(facts_of(rest.steps[i]), facts_of(whole.steps[3 + i]));
    EXPECT_EQ(facts_of(rest.evaluations.back()), facts_of(whole.evaluations.back()));
  }
  return whole;
}

TEST_F(DpoJob, CanBeReplayed) {
  train(config());
  for (const int64_t step : {3, 6}) {  // from the beginning, and from a checkpoint
    std::string result;
    comm::run_threads(1, [&](comm::World& world) { result = replay(config(), world, {.step = step}); });
    EXPECT_THAT(result, HasSubstr("tensors are equal to")) << step;
  }
}

TEST_F(DpoJob, RefusesToGoOnWithAnotherLoss) {
  train(config({"training.steps=3"}));
  const TrainOptions resume{.resume = true};
  EXPECT_THAT(refusal(config({"dpo.beta=0.2"}), resume), HasSubstr("--set: dpo.beta: 0.2 does not match"));
  EXPECT_THAT(refusal(config({"dpo.loss_type=ipo"}), resume), HasSubstr("dpo.loss_type: \"ipo\" does not match"));
}

TEST_F(DpoJob, DoesNotContinueAJobWithoutAReference) {
  folder.write("sft.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cdefghijklmnopqrstuvwxyzabcdefghijklmn\"}\n");
  const std::vector<std::string> sft{"training.objective=sft",    "data.train=" + folder.at("sft.jsonl"),
                                     "training.steps=2",          "data.validation_fraction=0",
                                     "training.evaluate_every=0", "checkpoint.directory=" + folder.at("sft")};
  train(config(sft));
  const TrainOptions resume{.resume = true, .resume_directory = folder.at("sft")};
  EXPECT_THAT(refusal<Error>(config(), resume), HasSubstr("data.validation_fraction: 0.2 does not match"));
  EXPECT_THAT(refusal<Error>(config({"data.validation_fraction=0", "training.evaluate_every=0"}), resume),
              HasSubstr("the training or validation data is not what"));
  // But it can begin with its weights, which are then the reference.
  const Lines lines = train(config(), 1, {.init_from = folder.at("sft")});
  EXPECT_EQ(lines.steps.front().at("loss").get<double>(), std::log(2.0));
}

TEST_F(DpoJob, RefusesAnotherReference) {
  train(config({"training.steps=2", "checkpoint.directory=" + folder.at("a")}));
  train(config({"training.steps=2", "training.seed=5", "checkpoint.directory=" + folder.at("b")}));
  const Lines whole = train(config({"checkpoint.directory=" + folder.at("whole")}), 1, {.init_from = folder.at("a")});
  train(config({"training.steps=3"}), 1, {.init_from = folder.at("a")});
  EXPECT_THAT(refusal(config(), {.resume = true, .init_from = folder.at("b")}),
              HasSubstr("compares answers with the weights that its run began with"));
  train(config({"training.steps=4"}), 1, {.resume = true, .init_from = folder.at("a")});
  std::filesystem::remove_all(folder.at("a"));  // the checkpoint holds what the job needs of these weights
  const Lines rest = train(config(), 1, {.resume = true, .init_from = folder.at("a")});
  ASSERT_EQ(rest.steps.size(), 2u);
  EXPECT_EQ(facts_of(rest.steps.back()), facts_of(whole.steps.back()));
}

TEST_F(DpoJob, RefusesADamagedReference) {
  train(config({"training.steps=3"}));
  const checkpoint::LoadedStep step = checkpoint::open_path(real_file_system(), folder.at("steps"));
  const std::string& text = step.run_state().reference;
  EXPECT_THAT(text, HasSubstr("random weights"));
  const auto data = trainer::open_text_data(config());
  trainer::PairReferences references(*data);
  EXPECT_NO_THROW(references.restore(text, "here"));
  EXPECT_EQ(references.weights(), "random weights");
  EXPECT_EQ(references.to_text(), text);
  for (const std::string& bad : {std::string(), text.substr(4), "AAAA" + text, text.substr(0, text.find(' ')) + " - x"})
    EXPECT_THROW(references.restore(bad, "here"), CheckpointError) << bad;
}

}  // namespace
}  // namespace trivet
