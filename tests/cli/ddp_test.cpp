// trivet train for people who come from PyTorch: --ddp, epochs, the best step, early stopping, and how a job scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Ddp : public testing::Test {
 protected:
  Ddp() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 64, "vocabulary": "characters"},
      "data": {"train": "text.txt", "sampler": "pytorch"}, "training": {"epochs": 2, "evaluate_every_epochs": 1},
      "train_batch_size": 16, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
      "checkpoint": {"directory": "checkpoints", "every_epochs": 1, "keep_best": true}
    })");
  }

  Folder folder;
};

TEST_F(Ddp, SaysAndSetsWhatItIs) {
  const Output run = folder.run("train --ddp config.json --ranks 2 --set run.directory=runs/one");
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.text,
              StartsWith("ddp     every rank has all weights; gradients are averaged in buckets of 25 MiB while backward "
                         "runs (zero_optimization.reduce_bucket_size=6553600, zero_optimization.overlap_comm=true)\n"));
  EXPECT_THAT(run.text, HasSubstr("plan    ZeRO-0 on data 2, float32, "));
  const std::string config = folder.read("runs/one/config.json");
  EXPECT_THAT(config, HasSubstr("\"reduce_bucket_size\": 6553600"));
  EXPECT_THAT(config, HasSubstr("\"overlap_comm\": true"));
}

// A bucket is measured in bytes, a key in elements.
TEST_F(Ddp, KeepsWhatIsGivenAndCountsTheBytesOfAnElement) {
  const Output given = folder.run(
      "train config.json --ddp --set training.epochs=0.1 --set zero_optimization.overlap_comm=false "
      "--set zero_optimization.reduce_bucket_size=1048576");
  ASSERT_EQ(given.code, 0) << given.errors;
  EXPECT_THAT(given.text,
              StartsWith("ddp     every rank has all weights; gradients are averaged in buckets of 4 MiB after backward\n"));
  const Output half = folder.run(
      "train config.json --ddp --set training.epochs=0.1 --set checkpoint.directory=other "
      "--set bf16.enabled=true --set data_types.grad_accum_dtype=bf16");
  ASSERT_EQ(half.code, 0) << half.errors;
  EXPECT_THAT(half.text,
              HasSubstr("in buckets of 25 MiB while backward runs (zero_optimization.reduce_bucket_size=13107200, "));
}

TEST_F(Ddp, RefusesAConfigThatAsksForMore) {
  const auto refusal = [&](const std::string& set) {
    const Output run = folder.run("train config.json --ddp --ranks 2 --set " + set);
    EXPECT_EQ(run.code, 2) << set;
    return run.errors;
  };
  EXPECT_THAT(
      refusal("zero_optimization.stage=2"),
      HasSubstr("zero_optimization.stage: 2 divides what the ranks keep, and with --ddp every rank keeps all of it; leave "
                "--ddp out, or set zero_optimization.stage to 0"));
  EXPECT_THAT(refusal("parallel.tensor=2"),
              HasSubstr("parallel.tensor: 2 divides the model, and with --ddp every rank has all of "
                        "it; leave --ddp out, or set parallel.tensor to 1"));
  EXPECT_THAT(refusal("pipeline.stages=2"), HasSubstr("2 divides the model"));
}

TEST_F(Ddp, TheBestCheckpointIsOpenedByItsName) {
  ASSERT_EQ(folder.run("train config.json --ddp").code, 0);
  const std::string best = folder.read("checkpoints/best");
  ASSERT_THAT(best, StartsWith("step-"));
  EXPECT_THAT(folder.run("checkpoint show checkpoints/best").text, StartsWith(best.substr(0, best.size() - 1)));
  const Output text = folder.run("generate checkpoints/best --prompt line --tokens 3");
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(folder.run("train config.json --init-from checkpoints/best --set checkpoint.directory=new").text,
              HasSubstr("weights checkpoints/" + best));
  const Output resumed = folder.run("train config.json --resume checkpoints/best --set checkpoint.directory=other");
  EXPECT_THAT(resumed.text, HasSubstr("resume  checkpoints/" + best)) << resumed.errors;
}

TEST_F(Ddp, ARunThatStopsImprovingEndsAsIfComplete) {
  const Output run = folder.run(
      "train config.json --set training.epochs=50 --set training.early_stopping_patience=2 "
      "--set optimizer.params.lr=0");
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.text, HasSubstr("\nstopped early, after step "));
  EXPECT_THAT(run.text, HasSubstr(": 2 evaluations in a row did not lower the best validation loss; it is "));
  EXPECT_THAT(run.text, HasSubstr("\nbest    checkpoints/best, step "));
}

TEST_F(Ddp, ReportsHowAJobScales) {
  for (const std::string ranks : {"1", "2"})
    ASSERT_EQ(folder
                  .run("train config.json --ddp --ranks " + ranks + " --set run.directory=runs/" + ranks +
                       " --set checkpoint.directory=c" + ranks)
                  .code,
              0);
  const Output table = folder.run("report scaling runs/2 runs/1 -o scaling.html");
  ASSERT_EQ(table.code, 0) << table.errors;
  EXPECT_THAT(table.text, StartsWith(" ranks    batch    samples/s  speedup   ideal  efficiency       tok/s    step ms  run\n"
                                     "     1       16 "));
  EXPECT_THAT(table.text, HasSubstr("     1.00    1.00     100.0 % "));
  EXPECT_THAT(table.text, HasSubstr("\n     2       16 "));
  EXPECT_THAT(table.text, HasSubstr("\nAll runs have the same batch (strong scaling).\n"));
  const std::string page = folder.read("scaling.html");
  EXPECT_THAT(page, HasSubstr("<h2>Scaling</h2>"));
  EXPECT_THAT(page, HasSubstr("<h1>2 runs</h1>"));
  EXPECT_THAT(folder.run("report scaling runs/1 runs/2 --json").text, HasSubstr("\"efficiency\": 1.0"));
  EXPECT_FALSE(std::filesystem::exists(folder.at("report.html")));
}

TEST_F(Ddp, ScalingNeedsTwoRunsWithAPlan) {
  ASSERT_EQ(folder.run("train config.json --set run.directory=runs/1 --metrics alone.jsonl").code, 0);
  const auto refusal = [&](const std::string& arguments) {
    const Output report = folder.run("report " + arguments);
    EXPECT_EQ(report.code, 2) << arguments;
    return report.errors;
  };
  EXPECT_THAT(refusal("scaling runs/1"), HasSubstr("give the folders of at least two, with different numbers of ranks"));
  EXPECT_THAT(refusal("scaling runs/1 alone.jsonl"),
              HasSubstr("alone.jsonl: there is no plan, which says how many ranks there were"));
  EXPECT_THAT(refusal("scaling"), HasSubstr("runs is required"));
  EXPECT_THAT(refusal("-o scaling.html scaling runs/1 runs/1"),
              HasSubstr("--output is given before \"scaling\"; write it after that word"));
  EXPECT_THAT(refusal("runs/1 scaling runs/1 runs/1"), HasSubstr("runs is given before \"scaling\""));
  EXPECT_THAT(refusal(""), HasSubstr("runs is required"));
}

}  // namespace
}  // namespace trivet::test
