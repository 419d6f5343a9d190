// What a run that diverges leaves behind and prints (exit code 16).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Diverged : public testing::Test {
 protected:
  Diverged() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": "text.txt", "validation_fraction": 0.1},
      "training": {"steps": 8, "seed": 3},
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "checkpoint": {"directory": "checkpoints", "every_steps": 1, "keep": 1}
    })");
  }
  bool has_step(const std::string& number) const {
    return std::filesystem::exists(folder.at("checkpoints/step-0000000" + number));
  }

  Folder folder;
};

// Step 4 produces weights of 1e30, which are finite. What is computed with them is not.
TEST_F(Diverged, GoodStepsStayAndTheLastStepsExitCodeIs16) {
  for (const std::string ranks : {"1", "2"}) {
    std::filesystem::remove_all(folder.at("checkpoints"));
    ASSERT_EQ(folder.run("train config.json --set training.steps=3").code, 0);
    const Output output = folder.run("train config.json --resume --set optimizer.params.lr=1e30 --ranks " + ranks);
    EXPECT_EQ(output.code, 16);
    EXPECT_THAT(output.errors, HasSubstr("warning: step 5 is not saved: its loss is "));
    EXPECT_THAT(output.errors, HasSubstr("error: step 8, the last one, was skipped: its loss is "));
    EXPECT_THAT(output.errors, HasSubstr("; the weights are finite, but too large for a finite loss (the largest is 1"));
    EXPECT_THAT(output.errors,
                HasSubstr("; step 8 was repeated: the first tensor that is not finite is the output of blocks.0 in "
                          "microbatch 0 on rank 0 (element "));
    EXPECT_THAT(output.errors, HasSubstr("; resume from a checkpoint before step 4 with a lower optimizer.params.lr"));
    EXPECT_THAT(output.errors, Not(HasSubstr("gradients overflowed")));
    EXPECT_TRUE(has_step("3"));
    EXPECT_FALSE(has_step("5"));
    EXPECT_FALSE(has_step("8"));
    const Output better =
        folder.run("train config.json --resume checkpoints/step-00000003 --set checkpoint.directory=again" + ranks);
    EXPECT_EQ(better.code, 0) << better.errors;
  }
}

TEST_F(Diverged, WeightsThatAreNotFiniteAreNeverSaved) {
  ASSERT_EQ(folder.run("train config.json --set training.steps=3").code, 0);
  const Output output = folder.run("train config.json --resume --set optimizer.params.lr=1e300 --set training.steps=4");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("error: after step 4, the last one; the weights are no longer finite: "));
  EXPECT_THAT(output.errors, HasSubstr(" on rank 0 (element "));
  EXPECT_TRUE(has_step("3"));
  EXPECT_FALSE(has_step("4"));
  // Without a checkpoint directory such a run is no success either.
  const Output unsaved =
      folder.run("train config.json --set optimizer.params.lr=1e300 --set training.steps=1 --set checkpoint.directory=");
  EXPECT_EQ(unsaved.code, 16);
  EXPECT_THAT(unsaved.errors, HasSubstr("after step 1, the last one; the weights are no longer finite: "));
}

// The loss scale is too large for float16, but the weights are undamaged.
TEST_F(Diverged, GradientsThatOverflowAreToldFromWeightsThatAreLost) {
  const Output output = folder.run(
      "train config.json --set fp16.enabled=true --set fp16.loss_scale=1e30 --set training.stop_after_skipped=3 --ranks 2");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("gradients were not finite 3 times in a row (training.stop_after_skipped 3)"));
  EXPECT_THAT(output.errors, HasSubstr("; the weights are finite and the loss was "));
  EXPECT_THAT(output.errors, HasSubstr(": only gradients overflowed; step 3 was repeated: "));
  EXPECT_THAT(output.errors, HasSubstr("; step 3 was repeated: the first tensor that is not finite is the gradient of "));
  EXPECT_THAT(output.errors, HasSubstr(" in microbatch 0 on rank 0 (element "));
  EXPECT_THAT(output.errors, HasSubstr("; no step had changed a weight before, so that no learning rate helps: lower "
                                       "fp16.loss_scale, or look at the weights that the run began with"));
}

TEST_F(Diverged, ARunThatSkippedTooManyStepsGoesOnFromItsNewestStepWithABetterConfig) {
  const std::string train =
      "train config.json --set fp16.enabled=true --set training.stop_after_skipped=3 --set fp16.loss_scale=";
  ASSERT_EQ(folder.run(train + "1e30").code, 16);
  ASSERT_TRUE(has_step("3"));
  // With the same config each resume tries one more step, and the message describes that step.
  const Output again = folder.run(train + "1e30 --resume");
  EXPECT_EQ(again.code, 16);
  EXPECT_THAT(again.text, HasSubstr("resumed after step 3"));
  EXPECT_THAT(again.errors, HasSubstr("step 4: gradients were not finite 3 times in a row"));
  EXPECT_THAT(again.errors, HasSubstr("; the weights are finite and the loss was 3."));
  EXPECT_THAT(again.errors, HasSubstr("; step 4 was repeated: the first tensor that is not finite is the gradient of "));
  const Output better = folder.run(train + "256 --resume");
  EXPECT_EQ(better.code, 0) << better.errors;
  EXPECT_THAT(better.text, HasSubstr("resumed after step 4"));
}

// The run ends with the step that reaches the limit: that is no success either.
TEST_F(Diverged, TooManySkippedStepsAtTheEndOfTheRunAreExitCode16) {
  const std::string overflow = "train config.json --set fp16.enabled=true --set fp16.loss_scale=1e30 --set training.steps=3 ";
  EXPECT_EQ(folder.run(overflow + "--set training.stop_after_skipped=3 --set checkpoint.directory=a").code, 16);
  const Output none = folder.run(overflow +
                                 "--set training.stop_after_skipped=4 --set checkpoint.directory=b "
                                 "--set training.evaluate_every=1");
  EXPECT_EQ(none.code, 16);
  EXPECT_THAT(none.errors, HasSubstr("all 3 steps were skipped, so the weights are those of the beginning: their gradients "
                                     "were not finite; train for more steps, or lower fp16.loss_scale"));
  EXPECT_THAT(folder
                  .run("train config.json --set fp16.enabled=true --set fp16.initial_scale_power=64 --set training.steps=2 "
                       "--set checkpoint.directory=c")
                  .errors,
              HasSubstr("train for more steps, or lower fp16.initial_scale_power"));
  EXPECT_THAT(none.text, HasSubstr("3 skipped, which is all of them: nothing was learned\n"));
  EXPECT_EQ(none.text.find("best"), std::string::npos) << none.text;
  // What was learned before a resume counts.
  const std::string again = "train config.json --resume --set fp16.enabled=true --set fp16.loss_scale=";
  EXPECT_EQ(folder.run(again + "1 --set checkpoint.directory=b --set training.steps=4").code, 0);
  EXPECT_EQ(folder.run(again + "1e30 --set checkpoint.directory=b --set training.steps=5").code, 0);
}

TEST_F(Diverged, AValidationLossThatIsNotFiniteIsExitCode16) {
  const Output output = folder.run(
      "train config.json --set optimizer.params.lr=1e30 --set training.steps=1 --set training.evaluate_every=1 --ranks 2");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors,
              HasSubstr("the validation loss after step 1, the last one, is nan; the weights are finite, but too large for "
                        "a finite loss (the largest is 1e+30, in "));
}

// If a run diverges and its last save fails, the divergence decides the exit code, and the failed save is reported, too.
TEST_F(Diverged, ALastCheckpointThatWasNotWrittenIsReportedToo) {
  folder.write("small", "ulimit -f 8\nexec \"$@\"\n");
  const Output output = folder.run_in(
      "sh small", "train config.json --set optimizer.params.lr=1e30 --set training.steps=1 --set training.evaluate_every=1");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("error: the validation loss after step 1, the last one, is nan; "));
  EXPECT_THAT(output.errors, HasSubstr("; checkpoint of step 1 was not written: "));
}

// The master weights are finite, the weights that the model computes with are not.
TEST_F(Diverged, WeightsThatAreInfiniteInFloat16AreNotFinite) {
  const std::string train = "train config.json --set optimizer.params.lr=1e6 --set training.steps=1 ";
  const Output output = folder.run(train + "--set fp16.enabled=true --set fp16.loss_scale=256");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.errors, HasSubstr("error: after step 1, the last one; the weights are no longer finite: "));
  EXPECT_THAT(output.errors, HasSubstr(", infinite in float16); start over with a lower "));
  EXPECT_FALSE(has_step("1"));
  EXPECT_EQ(folder.run(train + "--set bf16.enabled=true").code, 0);
  EXPECT_TRUE(has_step("1"));
}

TEST_F(Diverged, AFinishedRunWhoseWeightsAreNotFiniteIsNoSuccessWhenItIsResumed) {
  const std::string train = "train config.json --set optimizer.params.lr=1e6 --set training.steps=1 ";
  ASSERT_EQ(folder.run(train).code, 0);
  EXPECT_EQ(folder.run(train + "--resume").code, 0);
  const Output output = folder.run(train + "--resume --set fp16.enabled=true");
  EXPECT_EQ(output.code, 16);
  EXPECT_THAT(output.text, HasSubstr("nothing to do: step 1 is already done"));
  EXPECT_THAT(output.errors, HasSubstr("error: after step 1, the last one done; the weights are no longer finite: "));
}

}  // namespace
}  // namespace trivet::test
