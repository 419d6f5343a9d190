// How long a training job runs, what its evaluations cover (all of the validation split, each token once), and what follows
// from them: the best step, and the end of a run that does not improve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/world.h"
#include "core/error.h"
#include "core/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "tests/cli/program.h"
#include "trainer/trainer.h"

namespace trivet {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kTrainedSequence = 8;

// A text of `samples` sequences, and `further` bytes that are too few for another one.
std::string text_of(int64_t samples, int64_t further = 0) {
  std::string text;
  for (int64_t i = 0; i < samples * kTrainedSequence + 1 + further; ++i) text += static_cast<char>('a' + i * i % 23);
  return text;
}

// Takes what is printed to standard output until end(), also if a job throws.
class CapturedOutput {
 public:
  explicit CapturedOutput(std::string& text) : text_(text) { testing::internal::CaptureStdout(); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;
  ~CapturedOutput() { end(); }
  void end() {
    if (!std::exchange(ended_, true)) text_ = testing::internal::GetCapturedStdout();
  }

 private:
  std::string& text_;
  bool ended_ = false;
};

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
  Lines train(const Config& config, int ranks, const TrainOptions& options = {}) {
    printed.clear();
    CapturedOutput output(printed);
    comm::run_threads(ranks, [&](comm::World& world) {
      TrainOptions mine = options;
      if (world.rank() == 0) mine.metrics_file = folder.at("metrics.jsonl");
      const TrainEnd end = trivet::train(config, world, mine);
      if (world.rank() == 0) ended = end;
    });
    output.end();
    const auto read = [&](const std::string& name) {
      std::vector<nlohmann::json> lines;
      std::istringstream text(folder.read(name));
      for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
      std::filesystem::remove(folder.at(name));
      return lines;
    };
    return {read("metrics.jsonl"), read("metrics.evaluation.jsonl")};
  }

  static std::vector<int64_t> numbers_of(const std::vector<nlohmann::json>& lines) {
    std::vector<int64_t> steps;
    for (const auto& line : lines) steps.push_back(line.at("step"));
    return steps;
  }
  std::vector<int64_t> saved_steps(const std::string& name) const {
    std::vector<int64_t> steps;
    for (const auto& step : checkpoint::list_steps(real_file_system(), folder.at(name))) steps.push_back(step.step);
    return steps;
  }
  // What the last checkpoint says about evaluations.
  EvaluationState last_state(const std::string& name) const {
    return checkpoint::open_path(real_file_system(), folder.at(name)).run_state().evaluations.value();
  }

  const test::Folder folder;
  TrainEnd ended;
  std::string printed;
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

// Questions without answers fill some samples, so some steps have nothing to learn from.
TEST_F(TrainingJob, AStepWithoutTargetsHasNoLossAndChangesNothing) {
  const std::string question = "{\"prompt\": \"why\", \"completion\": \"\"}\n",
                    answered = "{\"prompt\": \"a\", \"completion\": \"bcd\"}\n";
  folder.write("train.jsonl", question + question + answered + question + question + question + answered + answered);
  folder.write("validation.jsonl", question + answered + question);
  const auto job = [&](const std::string& further) {
    Config some = config(
        R"("train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "optimizer": {"params": {"lr": 0.1, "weight_decay": 0.1}}, )" +
        further);
    some.data.train = folder.at("train.jsonl"), some.data.validation = folder.at("validation.jsonl");
    some.data.shuffle = false;
    return some;
  };
  std::vector<nlohmann::json> of_one_rank;
  for (const int ranks : {1, 2}) {
    const Lines lines = train(job(R"("training": {"steps": 4, "evaluate_every": 1}, "reproducible": "layout")"), ranks);
    ASSERT_EQ(lines.steps.size(), 4u);
    for (const size_t step : {0, 2}) {
      EXPECT_EQ(lines.steps[step].at("tokens"), 0);
      EXPECT_EQ(lines.steps[step].at("tokens_read"), 2 * kTrainedSequence) << "2 samples, with prompts and padding";
      for (const char* key : {"loss", "loss_bits", "grad_norm"}) EXPECT_TRUE(lines.steps[step].at(key).is_null()) << key;
      EXPECT_EQ(lines.steps[step].at("skipped"), true);
    }
    EXPECT_EQ(lines.steps[1].at("tokens"), 3);
    EXPECT_EQ(lines.evaluations[1].at("loss_bits"), lines.evaluations[2].at("loss_bits")) << "step 3 changed nothing";
    EXPECT_NE(lines.evaluations[2].at("loss_bits"), lines.evaluations[3].at("loss_bits"));
    EXPECT_THAT(printed,
                HasSubstr("note    5 of 8 training samples and 2 of 3 validation samples have no token that the loss counts"));
    EXPECT_THAT(printed, HasSubstr(", 2 skipped, 2 of them for lack of targets\n"));
    std::vector<nlohmann::json> bits;
    for (const auto& step : lines.steps) bits.push_back(step.at("loss_bits"));
    if (ranks == 1) of_one_rank = bits;
    EXPECT_EQ(bits, of_one_rank);
  }
  const auto refusal = [&](const std::string& further) -> std::string {
    try {
      train(job(further), 1);
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(
      refusal(R"("training": {"steps": 2, "evaluate_every": 1, "evaluate_samples": 1})"),
      HasSubstr("validation split: data: none of the 1 validation samples of model.sequence_length 8 has a token that"));
  folder.write("validation.jsonl", question);
  EXPECT_THAT(refusal(R"("training": {"steps": 2, "evaluate_every": 1})"), HasSubstr("validation.jsonl: has nothing to learn"));
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

// 10 samples in steps of 4: epochs end within or at the end of steps 3, 5 and 8.
TEST_F(TrainingJob, EvaluatesAndSavesAfterEpochs) {
  const std::string batch = fmt::format(R"("train_batch_size": 4, "checkpoint": {{"directory": "{}", "every_epochs": 2}}, )",
                                        folder.at("checkpoints"));
  const Lines lines = train(config(batch + R"("training": {"epochs": 3, "evaluate_every_epochs": 1})"), 2);
  EXPECT_THAT(numbers_of(lines.evaluations), ElementsAre(3, 5, 8));
  EXPECT_THAT(saved_steps("checkpoints"), ElementsAre(5, 8));
  EXPECT_THAT(printed, HasSubstr("epochs  3 of 10 samples, the first ends with step 3; the run with step 8\n"));
}

TEST_F(TrainingJob, EvaluatesEveryStepsAndEveryEpochs) {
  const Lines lines =
      train(config(R"("train_batch_size": 5, "training": {"steps": 9, "evaluate_every": 3, "evaluate_every_epochs": 2})"), 1);
  EXPECT_THAT(numbers_of(lines.evaluations), ElementsAre(3, 4, 6, 8, 9));
}

// With a learning rate of 0 no evaluation but the first is an improvement.
TEST_F(TrainingJob, EndsEarlyWhenItsPatienceIsExhausted) {
  const std::string job = fmt::format(
      R"("train_batch_size": 4, "optimizer": {{"params": {{"lr": 0}}}}, "checkpoint": {{"directory": "{}", "every_steps": 100}},
         "training": {{"steps": 100, "evaluate_every": 2, "early_stopping_patience": 3}})",
      folder.at("checkpoints"));
  EXPECT_EQ(train(config(job), 2).steps.size(), 8u);
  EXPECT_TRUE(ended.early);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(printed, HasSubstr("stopped early, after step 8 of 100: 3 evaluations in a row did not lower the best validation "
                                 "loss; it is "));
  EXPECT_THAT(saved_steps("checkpoints"), ElementsAre(8));
  EXPECT_EQ(train(config(job), 2, {.resume = true}).steps.size(), 0u);
  EXPECT_THAT(printed, HasSubstr("nothing to do: the run has ended after step 8, because 3 evaluations"));
}

TEST_F(TrainingJob, ARunThatImprovesIsNotEnded) {
  const Config job = config(R"("train_batch_size": 5, "optimizer": {"params": {"lr": 0.01}},
                               "training": {"steps": 12, "evaluate_every": 1, "early_stopping_patience": 12})");
  EXPECT_EQ(train(job, 1).steps.size(), 12u);
  EXPECT_FALSE(ended.early);
}

// A learning rate that is too high makes losses go up and down.
constexpr const char* kUnsteady = R"("train_batch_size": 4, "optimizer": {"params": {"lr": 3}})";

TEST_F(TrainingJob, TheBestStepIsKept) {
  const Config job = config(fmt::format(
      R"({}, "checkpoint": {{"directory": "{}", "every_steps": 5, "keep": 1, "keep_best": true}},
         "training": {{"steps": 20, "evaluate_every": 2}})",
      kUnsteady, folder.at("checkpoints")));
  const Lines lines = train(job, 2);
  const auto lowest =
      std::ranges::min_element(lines.evaluations, {}, [](const auto& line) { return line.at("loss").template get<double>(); });
  const int64_t best = lowest->at("step");
  ASSERT_LT(best, 18) << "the best step is one that retention would keep anyway";
  EXPECT_EQ(folder.read("checkpoints/best"), checkpoint::step_directory_name(best) + "\n");
  EXPECT_THAT(printed, HasSubstr(fmt::format("best    {}/best, step {}: validation loss ", folder.at("checkpoints"), best)));
  EXPECT_THAT(saved_steps("checkpoints"), Contains(best));
  EXPECT_EQ(last_state("checkpoints").best_step, best);
  EXPECT_EQ(last_state("checkpoints/best").best_step, best) << "the checkpoint knows its own evaluation";
}

// From every step of a run: the same evaluations and the same end.
TEST_F(TrainingJob, AResumedRunEndsAsEarlyAndWithTheSameBestStep) {
  const auto job = [&](const std::string& name) {
    return config(fmt::format(R"({}, "checkpoint": {{"directory": "{}", "every_steps": 1, "keep_best": true}},
        "training": {{"steps": 40, "evaluate_every": 2, "early_stopping_patience": 2, "early_stopping_threshold": 0.01}})",
                              kUnsteady, folder.at(name)));
  };
  const auto whole = train(job("whole"), 1);
  ASSERT_TRUE(ended.early);
  const auto last = static_cast<int64_t>(whole.steps.size());
  const EvaluationState expected = last_state("whole");
  for (int64_t step = 1; step < last; ++step) {
    SCOPED_TRACE(step);
    const std::string name = fmt::format("from-{}", step);
    std::filesystem::copy(folder.at("whole"), folder.at(name), std::filesystem::copy_options::recursive);
    for (int64_t later = step + 1; later <= last; ++later)
      std::filesystem::remove_all(folder.at(name + "/" + checkpoint::step_directory_name(later)));
    const auto rest = train(job(name), 1, {.resume = true});
    EXPECT_EQ(static_cast<int64_t>(rest.steps.size()), last - step);
    EXPECT_EQ(rest.steps.back().at("loss_bits"), whole.steps.back().at("loss_bits"));
    EXPECT_EQ(last_state(name), expected);
  }
}

// A signal ends a run after its first step, which is saved before it is evaluated.
TEST_F(TrainingJob, AnEvaluationForWhichThereWasNoTimeIsMadeUp) {
  const auto job = [&](const std::string& name) {
    return config(fmt::format(R"({}, "checkpoint": {{"directory": "{}", "keep_best": true}},
                                 "training": {{"steps": 3, "evaluate_every": 1}})",
                              kUnsteady, folder.at(name)));
  };
  const auto whole = train(job("whole"), 2);
  StopRequest stop;
  stop.end(SIGTERM);
  const auto first = train(job("parts"), 2, {.stop = &stop});
  EXPECT_EQ(ended.signal, SIGTERM);
  EXPECT_EQ(first.steps.size(), 1u);
  EXPECT_THAT(numbers_of(first.evaluations), ElementsAre());
  EXPECT_EQ(last_state("parts"), EvaluationState{});
  const auto rest = train(job("parts"), 2, {.resume = true});
  EXPECT_THAT(numbers_of(rest.evaluations), ElementsAre(1, 2, 3));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.evaluations[i].at("loss_bits"), whole.evaluations[i].at("loss_bits")) << i;
  EXPECT_EQ(last_state("parts"), last_state("whole"));
}

// The step that was saved before its evaluation is saved again, so that it is named.
TEST_F(TrainingJob, ASignalInTheLastStepDoesNotHideThatItIsTheBest) {
  StopRequest stop;
  stop.end(SIGTERM);
  train(config(fmt::format(R"({}, "checkpoint": {{"directory": "{}", "keep_best": true}},
                              "training": {{"steps": 1, "evaluate_every": 1}})",
                           kUnsteady, folder.at("checkpoints"))),
        2, {.stop = &stop});
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(folder.read("checkpoints/best"), "step-00000001\n");
  EXPECT_EQ(last_state("checkpoints").best_step, 1);
}

TEST_F(TrainingJob, ABestStepThatIsMadeUpIsNamed) {
  const auto job = [&](int64_t steps) {
    return config(fmt::format(
        R"("train_batch_size": 4, "optimizer": {{"params": {{"lr": 0}}}}, "checkpoint": {{"directory": "{}", "keep_best": true,
           "keep": 1}}, "training": {{"steps": {}, "evaluate_every": 1}})",
        folder.at("checkpoints"), steps));
  };
  StopRequest stop;
  stop.end(SIGTERM);
  train(job(9), 2, {.stop = &stop});
  train(job(3), 2, {.resume = true});
  EXPECT_EQ(folder.read("checkpoints/best"), "step-00000001\n");
  EXPECT_THAT(saved_steps("checkpoints"), ElementsAre(1, 3));
}

// With a learning rate of 0 the first evaluation, after step 2, stays the best.
TEST_F(TrainingJob, TheBestStepOfAnotherDirectoryIsSavedOrItIsSaidThatItIsNotThere) {
  const auto job = [&](const std::string& name, int64_t steps) {
    return config(fmt::format(
        R"("train_batch_size": 5, "optimizer": {{"params": {{"lr": 0}}}}, "checkpoint": {{"directory": "{}", "keep_best": true}},
           "training": {{"steps": {}, "evaluate_every": 2}})",
        folder.at(name), steps));
  };
  train(job("first", 4), 1);
  EXPECT_THAT(saved_steps("first"), ElementsAre(2, 4));
  train(job("second", 6), 1, {.resume = true, .resume_directory = folder.at("first/best")});
  EXPECT_THAT(saved_steps("second"), ElementsAre(2, 6));
  EXPECT_EQ(folder.read("second/best"), "step-00000002\n");
  EXPECT_THAT(printed, HasSubstr(fmt::format("best    {}/best, step 2: validation loss ", folder.at("second"))));
  train(job("third", 6), 1, {.resume = true, .resume_directory = folder.at("first")});
  EXPECT_THAT(saved_steps("third"), ElementsAre(6));
  EXPECT_THAT(printed, HasSubstr("best    step 2: validation loss "));
  EXPECT_THAT(printed, HasSubstr(fmt::format("; {} has no checkpoint of it\n", folder.at("third"))));
}

// 10 samples: the third step of 4 has 2, as the fifth step of 2 does. Its loss and its gradient are those of 2 samples.
TEST_F(TrainingJob, AShorterBatchOfPyTorchsSamplerCountsOnlyItsSamples) {
  const auto run = [&](int64_t batch, int ranks) {
    Config job = config(
        fmt::format(R"("train_batch_size": {}, "training": {{"epochs": 2}}, "optimizer": {{"params": {{"lr": 0}}}})", batch));
    job.data.sampler = SamplerKind::PyTorch;
    job.data.shuffle = false;
    return train(job, ranks).steps;
  };
  const auto pairs = run(2, 1);
  ASSERT_EQ(pairs.size(), 10u);
  for (const int ranks : {1, 2}) {
    const auto steps = run(4, ranks);
    ASSERT_EQ(steps.size(), 6u);
    for (const size_t step : {size_t{2}, size_t{5}}) {
      EXPECT_EQ(steps[step].at("tokens"), 2 * kTrainedSequence);
      EXPECT_NEAR(steps[step].at("loss").get<double>(), pairs[4].at("loss").get<double>(), 1e-6);
      EXPECT_NEAR(steps[step].at("grad_norm").get<double>(), pairs[4].at("grad_norm").get<double>(), 1e-5);
    }
  }
}

TEST_F(TrainingJob, ASampleOfPyTorchsSamplerIsFoundAgainAfterAResume) {
  const auto job = [&](const std::string& name, int64_t steps) {
    Config made = config(fmt::format(
        R"("train_batch_size": 4, "checkpoint": {{"directory": "{}"}}, "training": {{"steps": {}}})", folder.at(name), steps));
    made.data.sampler = SamplerKind::PyTorch;
    return made;
  };
  const auto whole = train(job("whole", 8), 2).steps;  // 3 steps of an epoch
  train(job("parts", 5), 2);
  const auto rest = train(job("parts", 8), 2, {.resume = true}).steps;
  ASSERT_EQ(rest.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i].at("loss_bits"), whole[5 + i].at("loss_bits")) << i;
}

// 10 samples: one rank has 4 steps of 3 in an epoch; each of 3 ranks that drop the last sample has 3 steps.
TEST_F(TrainingJob, RefusesToGoOnAtAnotherPlaceOfAnEpoch) {
  Config job = config(fmt::format(R"("train_batch_size": 3, "train_micro_batch_size_per_gpu": 1, "training": {{"steps": 2}},
                                     "checkpoint": {{"directory": "{}"}})",
                                  folder.at("checkpoints")));
  job.data.sampler = SamplerKind::PyTorch;
  job.data.drop_last = true;
  train(job, 1);
  job.training.steps = 4;
  try {
    train(job, 3, {.resume = true});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("data.sampler: with this number of ranks an epoch has 3 steps, and in the run that saved "));
    EXPECT_THAT(error.what(), HasSubstr("it had 4; use as many data-parallel ranks"));
  }
}

// 10 samples in steps of 2: 15 steps; the warm-up takes 5 of them.
TEST_F(TrainingJob, TheScheduleEndsWithTheEpochs) {
  const auto rates = [&](const char* further) {
    std::vector<double> values;
    for (const auto& line : train(config(fmt::format(R"("train_batch_size": 2, {})", further)), 1).steps)
      values.push_back(line.at("lr"));
    return values;
  };
  const auto of_epochs = rates(R"("training": {"epochs": 3}, "scheduler": {"type": "Cosine"})");
  EXPECT_EQ(of_epochs, rates(R"("training": {"steps": 15}, "scheduler": {"type": "Cosine"})"));
  EXPECT_LT(of_epochs.back(), 0.05 * of_epochs.front());
  const auto scaled = rates(R"("training": {"epochs": 3}, "optimizer": {"params": {"lr": 0.001},
                               "lr_scaling": {"rule": "linear", "base_batch_size": 1, "warmup_epochs": 1}})");
  EXPECT_NEAR(scaled[0], 0.001, 1e-9);
  EXPECT_NEAR(scaled[4], 0.0018, 1e-9);
  EXPECT_NEAR(scaled[5], 0.002, 1e-9);
  EXPECT_THAT(printed,
              HasSubstr("lr      0.001 x 2 = 0.002 for batch 2 (linear, chosen for 1), reached after 5 steps of warm-up\n"));
}

}  // namespace
}  // namespace trivet
