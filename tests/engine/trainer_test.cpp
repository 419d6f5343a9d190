// How long a training job runs, and what its evaluations cover: all of the validation split, each token once.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "engine/trainer.h"
#include "tests/cli/program.h"

namespace trivet {
namespace {

constexpr int64_t kTrainedSequence = 8;

// A text of `samples` sequences, and `further` bytes that are too few for another one.
std::string text_of(int64_t samples, int64_t further = 0) {
  std::string text;
  for (int64_t i = 0; i < samples * kTrainedSequence + 1 + further; ++i) text += static_cast<char>('a' + i * i % 23);
  return text;
}

class TrainingJob : public testing::Test {
 protected:
  TrainingJob() {
    folder.write("train.txt", text_of(10, 3));
    folder.write("validation.txt", text_of(7, 4));
  }

  Config config(const std::string& further) const {
    return parse_config(fmt::format(R"({{"model": {{"layers": 1, "hidden_size": 8, "heads": 2, "sequence_length": {}}},
                         "data": {{"train": "{}", "validation": "{}"}},
                         "steps_per_print": 1000000, {}}})",
                                    kTrainedSequence, folder.at("train.txt"), folder.at("validation.txt"), further),
                        "job");
  }

  // Lines of metrics of a job, and those of its evaluations.
  struct Lines {
    std::vector<nlohmann::json> steps, evaluations;
  };
  Lines train(const Config& config, int ranks) {
    testing::internal::CaptureStdout();
    comm::run_threads(ranks, [&](comm::World& world) {
      trivet::train(config, world, {.metrics_file = world.rank() == 0 ? folder.at("metrics.jsonl") : ""});
    });
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

  const test::Folder folder;
};

// The mean loss of the first `samples` sequences of the validation text, one at a time, by the weights that were saved.
double loss_one_by_one(const Config& config, const std::string& text, int64_t samples) {
  double sum = 0;
  comm::run_threads(1, [&](comm::World& world) {
    Config alone = config;
    alone.batch = {.train_batch_size = config.batch.train_batch_size, .micro_batch_size = 1, .gradient_accumulation_steps = 0};
    model::Model model = model::build(model::with_vocabulary(config.model, 256));
    Plan plan = make_plan(alone, model, 1);
    Engine engine(std::move(plan), std::move(model), world);
    ASSERT_TRUE(engine.load(config.checkpoint.directory));
    for (int64_t sample = 0; sample < samples; ++sample) {
      const std::vector<int32_t> tokens(text.begin() + sample * kTrainedSequence,
                                        text.begin() + (sample + 1) * kTrainedSequence);
      const std::vector<int32_t> targets(text.begin() + sample * kTrainedSequence + 1,
                                         text.begin() + (sample + 1) * kTrainedSequence + 1);
      const Shape shape{1, kTrainedSequence};
      const Microbatch microbatch{{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}, sample};
      sum += engine.evaluate({&microbatch, 1}).loss;
    }
  });
  return sum / static_cast<double>(samples);
}

// 7 samples are evaluated in microbatches of 2 (of 3 on 2 ranks, which share a batch of 6). The last microbatch is short, and 3
// ranks get unequal numbers.
TEST_F(TrainingJob, EvaluatesEveryTokenOfTheValidationSplitOnceOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3})
    for (const int64_t limit : {0, 5}) {
      SCOPED_TRACE(fmt::format("{} ranks, evaluate_samples {}", ranks, limit));
      const int64_t samples = limit > 0 ? limit : 7;
      const std::string directory = folder.at(fmt::format("checkpoints-{}-{}", ranks, limit));
      const Config job = config(fmt::format(
          R"("training": {{"steps": 3, "evaluate_every": 2, "evaluate_samples": {}}}, "train_batch_size": 6,
             "train_micro_batch_size_per_gpu": {}, "optimizer": {{"params": {{"lr": 0.05}}}}, "checkpoint": {{"directory": "{}"}})",
          limit, 6 % (2 * ranks) == 0 ? 2 : 3, directory));
      const Lines lines = train(job, ranks);
      ASSERT_EQ(lines.evaluations.size(), 2u);  // after step 2, and at the end
      EXPECT_EQ(lines.evaluations[0].at("step"), 2);
      EXPECT_EQ(lines.evaluations[1].at("step"), 3);
      for (const auto& evaluation : lines.evaluations) EXPECT_EQ(evaluation.at("tokens"), samples * kTrainedSequence);
      // The losses of a few tokens are float32 and summed in a different order.
      EXPECT_NEAR(lines.evaluations[1].at("loss"), loss_one_by_one(job, text_of(7), samples), 1e-6);
    }
}

// 10 samples in steps of 4: the last step of a run may cross the end of an epoch, and no epoch is cut short.
TEST_F(TrainingJob, EpochsAreRoundedUpToWholeSteps) {
  const auto steps_of = [&](double epochs, int64_t batch) {
    const Config job = config(fmt::format(R"("training": {{"epochs": {}}}, "train_batch_size": {})", epochs, batch));
    return train(job, 1).steps.size();
  };
  EXPECT_EQ(steps_of(1, 4), 3u);     // 10 samples
  EXPECT_EQ(steps_of(1.5, 4), 4u);   // 15
  EXPECT_EQ(steps_of(2, 4), 5u);     // 20: an exact number of steps
  EXPECT_EQ(steps_of(0.05, 4), 1u);  // less than a sample
  EXPECT_EQ(steps_of(1, 10), 1u);
  EXPECT_EQ(steps_of(2.1, 10), 3u);
}

}  // namespace
}  // namespace trivet
