// Runs `trivet replay` as a user does, and trains with audit.every_steps.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Replay : public testing::Test {
 protected:
  Replay() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters", "dropout": 0.1},
      "data": {"train": "text.txt", "validation_fraction": 0.1},
      "training": {"steps": 8, "seed": 3},
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "reproducible": "layout",
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "zero_optimization": {"stage": 2},
      "checkpoint": {"directory": "checkpoints", "every_steps": 3},
      "audit": {"every_steps": 2}
    })");
    const Output trained = folder.run("train config.json --ranks 2 --metrics metrics.jsonl");
    EXPECT_EQ(trained.code, 0) << trained.errors;
  }

  // Changes the bits of the loss of a step in the metrics.
  void change_loss_of(const std::string& step) {
    std::string metrics = folder.read("metrics.jsonl");
    const std::string key = "\"loss_bits\": \"";
    char& digit = metrics[metrics.find(key, metrics.find("{\"step\": " + step)) + key.size() + 7];
    digit = digit == '0' ? '1' : '0';
    folder.write("metrics.jsonl", metrics);
  }

  Folder folder;
};

TEST_F(Replay, SaysThatAllIsEqualOnAnyLayoutAndSavesNothing) {
  const std::string all_equal =
      "replay of step 6 from checkpoints/step-00000003: 3 losses are equal to metrics.jsonl, 48 tensors are equal to "
      "checkpoints/step-00000006\n";
  for (const char* flags : {"--ranks 2", "", "--ranks 3 --set zero_optimization.stage=3",
                            "--ranks 2 --set parallel.tensor=2 --set zero_optimization.stage=0"}) {
    const Output output = folder.run(std::string("replay config.json --step 6 --metrics metrics.jsonl ") + flags);
    EXPECT_EQ(output.code, 0) << flags << output.errors;
    EXPECT_EQ(output.text, all_equal) << flags;
  }
  EXPECT_EQ(folder.run("checkpoint list checkpoints").text.find("step-00000009"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.at("checkpoints/step-00000004")));
}

// Random weights in their place would look like a broken processor.
TEST_F(Replay, BeginsWithTheWeightsThatTheRunBeganWith) {
  ASSERT_EQ(
      folder.run("train config.json --init-from checkpoints --set checkpoint.directory=second --set training.steps=2").code, 0);
  const std::string replay = "replay config.json --step 2 --checkpoints second --set training.steps=2";
  EXPECT_THAT(folder.run(replay + " --init-from checkpoints").text, HasSubstr("48 tensors are equal to second/step-00000002"));
  EXPECT_THAT(folder.run(replay + " --set model.from=checkpoints").text, HasSubstr("48 tensors are equal to"));
  const Output without = folder.run(replay);
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.errors,
              HasSubstr("the run began with the weights of checkpoints, and there is no checkpoint before the step"));
}

// No checkpoint before the step is compared with what the config says.
TEST_F(Replay, NamesTheKeysThatChangedAlsoFromTheBeginning) {
  EXPECT_THAT(folder.run("replay config.json --step 3 --set training.seed=9 --set optimizer.params.lr=0.02").errors,
              HasSubstr("the config is another one: training.seed is 9, and was 3; optimizer.params.lr is 0.02, and was 0.01"));
}

TEST_F(Replay, StartsAtTheNewestCheckpointBeforeTheStep) {
  EXPECT_THAT(folder.run("replay config.json --step 8").text, HasSubstr("step 8 from checkpoints/step-00000006: "));
  EXPECT_THAT(folder.run("replay config.json --step 7 --metrics metrics.jsonl").text,
              HasSubstr("step 7 from checkpoints/step-00000006: 1 loss is equal to metrics.jsonl\n"));
  EXPECT_THAT(folder.run("replay config.json --step 3").text, HasSubstr("step 3 from the beginning"));
}

TEST_F(Replay, NamesTheFirstLossThatDiffers) {
  change_loss_of("5");
  const Output output = folder.run("replay config.json --step 6 --metrics metrics.jsonl --ranks 2");
  EXPECT_EQ(output.code, 12);
  EXPECT_THAT(output.errors, AllOf(HasSubstr("replay of step 6"), HasSubstr("the loss of step 5 is "), HasSubstr("and was ")));
}

// A weight that changed between two checkpoints: step 6 is that of another run.
TEST_F(Replay, NamesTheFirstTensorAndElementThatDiffers) {
  ASSERT_EQ(folder.run("train config.json --set checkpoint.directory=other --set optimizer.params.lr=0.02").code, 0);
  std::filesystem::remove_all(folder.at("checkpoints/step-00000006"));
  std::filesystem::rename(folder.at("other/step-00000006"), folder.at("checkpoints/step-00000006"));
  const Output output = folder.run("replay config.json --step 6 --ranks 2");
  EXPECT_EQ(output.code, 12);
  EXPECT_THAT(output.errors, AllOf(HasSubstr("embedding.tokens.weight[0, 0] is "), HasSubstr("elements differ on rank 0")));
  const Output changed = folder.run("replay config.json --step 6 --set gradient_clipping=0.5");
  EXPECT_EQ(changed.code, 12);
  EXPECT_THAT(changed.errors, HasSubstr("the config is another one: gradient_clipping is 0.5, and was 1.0"));
}

TEST_F(Replay, RefusesWhatItCannotCompare) {
  const auto refusal = [&](const std::string& flags) {
    const Output output = folder.run("replay config.json " + flags);
    EXPECT_EQ(output.code, 2) << flags;
    return output.errors;
  };
  EXPECT_THAT(refusal("--step 5"), HasSubstr("--step 5: there is nothing to compare with: \"checkpoints\" has no checkpoint of "
                                             "that step, and --metrics is not given"));
  EXPECT_THAT(refusal("--step 9 --metrics metrics.jsonl"), HasSubstr("--step 9: the run ends at step 8"));
  folder.write("short.jsonl", folder.read("metrics.jsonl").substr(0, folder.read("metrics.jsonl").find("{\"step\": 5")));
  EXPECT_THAT(refusal("--step 6 --metrics short.jsonl"), HasSubstr("short.jsonl: has no loss of step 6"));
  EXPECT_THAT(refusal("--step 6 --metrics none.jsonl"), HasSubstr("none.jsonl: cannot be read"));
  EXPECT_THAT(refusal("--step 6 --metrics config.json"),
              HasSubstr("config.json:1: \"{\" is not a line of trivet train --metrics"));
}

TEST_F(Replay, NeedsTheLayoutOfTheRunInRunMode) {
  const std::string run = " --set audit.every_steps=0 --set reproducible=run --set checkpoint.directory=run ";
  ASSERT_EQ(folder.run("train config.json --ranks 2" + run).code, 0);
  EXPECT_THAT(folder.run("replay config.json --step 6 --ranks 2" + run).text, HasSubstr("48 tensors are equal"));
  const Output ranks = folder.run("replay config.json --step 6 --ranks 3" + run);
  EXPECT_EQ(ranks.code, 2);
  EXPECT_THAT(ranks.errors, HasSubstr("there are 3 ranks here and 2 (--ranks 2) in run/step-00000003"));
  const Output stage = folder.run("replay config.json --step 6 --ranks 2 --set zero_optimization.stage=1" + run);
  EXPECT_EQ(stage.code, 2);
  EXPECT_THAT(stage.errors, HasSubstr("zero_optimization.stage is 1 here and 2 in run/step-00000003"));
  EXPECT_THAT(
      folder.run("replay config.json --step 6 --ranks 2 --set activation_checkpointing.mlp_slice_tokens=3" + run).errors,
      HasSubstr("activation_checkpointing.mlp_slice_tokens is 3 here and 0 in run/step-00000003"));
}

}  // namespace
}  // namespace trivet::test
