// What users name as outputs never replaces an input, nor, without --force, a file of theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WrittenFiles : public testing::Test {
 protected:
  WrittenFiles() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "hello world ";
    folder.write("t.txt", text);
    fs::create_directory(folder.at("f"));
    folder.write("f/a.txt", text);
    folder.write("notes.txt", "mine");
    folder.write("c.json", R"({"model": {"layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16},
      "training": {"steps": 2, "evaluate_every": 1}, "data": {"train": "t.txt", "validation_fraction": 0.3},
      "train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}})");
    fs::create_symlink("c.json", folder.at("link"));
    fs::create_hard_link(folder.at("t.txt"), folder.at("hard"));
  }
  // Of all files that are there now.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      const std::string name = fs::relative(entry.path(), folder.path()).string();
      if (entry.is_regular_file() && name != "out" && name != "err") all[name] = folder.read(name);
    }
    return all;
  }
  Folder folder;
};

TEST_F(WrittenFiles, AreNoInputs) {
  ASSERT_EQ(folder.run("train c.json --metrics m.jsonl").code, 0);
  ASSERT_EQ(folder.run("data prepare t.txt --train-bpe 260 --output v.tokens").code, 0);
  const auto before = contents();
  const char* const refused[] = {
      "train c.json --metrics t.txt",
      "train c.json --metrics hard --force",
      "train c.json --metrics c.json",
      "train c.json --metrics ./link --force",
      "train c.json --set data.train=f --metrics f/new.jsonl",
      "train c.json --set data.train=f/*.txt --metrics f/new.txt",
      "train c.json --set flops_profiler.enabled=true --set flops_profiler.output_file=c.json --force",
      "train c.json --set csv_monitor.enabled=true --set csv_monitor.output_path=f --set data.train=f",
      "train c.json --set data.train=f --set checkpoint.directory=f/checkpoints",
      "train c.json --set data.train=f --set run.directory=f",
      "plan --html c.json c.json",
      "plan --html link c.json --force",
      "plan --html t.txt c.json --force",
      "report m.jsonl -o m.jsonl --force",
      "report m.jsonl -o m.evaluation.jsonl",
      "report scaling m.jsonl m.jsonl -o m.jsonl",
      "data prepare f --output f/a.txt --force",
      "data prepare f --output f/new.bin",
      "data prepare f --output f/new.tokens",
      "train c.json --set data.train=*.evaluation.jsonl --metrics n.jsonl",
      "data prepare t.txt --output hard --force",
      "data prepare f --vocabulary v.tokens --output v.tokens --force",
  };
  for (const std::string arguments : refused) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_THAT(output.errors,
                testing::AnyOf(HasSubstr("is the same file as an input"), HasSubstr("lies in a folder whose files are read"),
                               HasSubstr("that data.train matches")))
        << arguments;
    EXPECT_TRUE(contents() == before) << arguments;
  }
}

TEST_F(WrittenFiles, AreNoFilesOfTheStepThatARunResumesFrom) {
  const std::string train = "train c.json --set checkpoint.directory=ck --metrics ck/m.jsonl", step = "ck/step-00000002";
  ASSERT_EQ(folder.run(train).code, 0);
  const std::string more = "train c.json --set checkpoint.directory=ck --set training.steps=3 --force --resume";
  for (const std::string from : {"", " ck", " ck/step-00000002"}) {
    const Output output = folder.run(more + from + " --metrics " + step + "/manifest.json");
    EXPECT_EQ(output.code, 2) << from;
    EXPECT_THAT(output.errors, HasSubstr("is the same file as an input (--resume)")) << from;
  }
  EXPECT_EQ(folder.run(more + " --metrics ck/m.jsonl").code, 0) << "metrics may lie next to the steps";
}

TEST_F(WrittenFiles, AreNoTwoOutputsOfOneRun) {
  const auto before = contents();
  const std::string flops = "--set flops_profiler.enabled=true --set flops_profiler.output_file=",
                    csv = "--set csv_monitor.enabled=true --set csv_monitor.job_name=j --set csv_monitor.output_path=",
                    board = "--set tensorboard.enabled=true --set tensorboard.job_name=j --set tensorboard.output_path=";
  const std::string refused[] = {
      "--metrics x " + flops + "x",
      "--metrics x " + flops + "x.evaluation",
      "--metrics o/j/Train_Samples_lr.csv " + csv + "o",
      "--metrics o/j/events.out.tfevents.1 " + board + "o",
      "--metrics r/config.json --set run.directory=r",
      "--metrics r/starts.jsonl --set run.directory=r --force",
      "--metrics r --set run.directory=r",
      "--metrics t/costs.json --set timeline.step=1 --set timeline.steps=1 --set timeline.directory=t",
      "--metrics ck/latest --set checkpoint.directory=ck",
      "--set run.directory=ck/step-00000001 --set checkpoint.directory=ck",
      "--set run.directory=r " + flops + "r/plan.txt",
  };
  for (const std::string& outputs : refused) {
    const Output output = folder.run("train c.json " + outputs);
    EXPECT_EQ(output.code, 2) << outputs;
    EXPECT_THAT(output.errors, HasSubstr("is also written by")) << outputs;
    EXPECT_TRUE(contents() == before) << outputs;
  }
  EXPECT_EQ(folder
                .run("train c.json --set run.directory=r --set checkpoint.directory=r --metrics r/m.jsonl " + csv + "r " +
                     board + "r " + flops + "r/flops.txt")
                .code,
            0);
}

TEST_F(WrittenFiles, AreNoInputsOfTheLauncher) {
  folder.write("hl", "localhost slots=1\n");
  folder.write(".deepspeed_env", "A=1\n");
  ::chmod(folder.at(".deepspeed_env").c_str(), 0600);
  folder.write("j.sh", "#!/bin/sh\nexec " + std::string(TRIVET_BINARY_DIR "/trivet") + " \"$@\"\n");
  ::chmod(folder.at("j.sh").c_str(), 0700);
  fs::create_directory(folder.at("lg"));
  folder.write("lg/rank_0.out", "localhost slots=1\n");
  const auto before = contents();
  const std::string metrics = " trivet train c.json --force --metrics ";
  const std::string refused[] = {
      "launch --hostfile hl" + metrics + "hl",
      "launch --hostfile hl --force_multi" + metrics + "hl",
      "launch --num_gpus 1" + metrics + ".deepspeed_env",
      "launch --hostfile hl trivet plan c.json --force --html hl",
      "launch --hostfile hl ./j.sh train c.json --force --metrics j.sh",
      "launch --hostfile hl --enable_each_rank_log lg2" + metrics + "lg2/rank_0.out",
      "launch --hostfile lg/rank_0.out --force_multi --enable_each_rank_log lg ./j.sh --version",
      "launch --num_gpus 1 --enable_each_rank_log lg trivet train c.json --set data.train=lg/rank_0.out",
  };
  for (const std::string& arguments : refused) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << output.errors;
    fs::remove_all(folder.at("lg2"));
    EXPECT_TRUE(contents() == before) << arguments;
  }
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(folder.run("launch --hostfile hl --enable_each_rank_log lg3 trivet plan c.json").code, 0) << "its own logs";
}

TEST_F(WrittenFiles, WithNamesThatCannotBeAreTheUsersMistake) {
  const Output output = folder.run("train c.json --metrics " + std::string(300, 'x'));
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, HasSubstr("File name too long"));
}

TEST_F(WrittenFiles, ReplaceOnlyOnesOfTheirKindWithoutForce) {
  ASSERT_EQ(folder.run("train c.json --metrics m.jsonl").code, 0);
  for (const std::string arguments :
       {"train c.json --metrics notes.txt", "plan c.json --html notes.txt", "report m.jsonl -o notes.txt",
        "plan c.json --html m.jsonl",
        "train c.json --set flops_profiler.enabled=true --set flops_profiler.output_file=notes.txt"}) {
    const auto before = contents();
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_THAT(output.errors, HasSubstr("name another file, or replace this one with --force")) << arguments;
    EXPECT_TRUE(contents() == before) << arguments;
    EXPECT_EQ(folder.run(arguments + " --force").code, 0) << arguments;
    folder.write("notes.txt", "mine");
  }
  // Their own are replaced, or appended to.
  fs::remove(folder.at("m.jsonl"));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(folder.run("train c.json --metrics m.jsonl").code, 0);
  for (const std::string arguments : {"plan c.json --html p.html", "report m.jsonl -o p.html", "plan c.json --html p.html"})
    EXPECT_EQ(folder.run(arguments).code, 0) << arguments;
}

// DeepSpeed, too, calls the name of its newest checkpoint "latest"; other trainers have a link.
TEST_F(WrittenFiles, AreNotTheNewestCheckpointOfAnotherProgram) {
  const std::string train = "train c.json --set checkpoint.directory=";
  for (const char* name : {"latest", "best"}) {
    const std::string directory = std::string("of_") + name, link = std::string("link_") + name;
    fs::create_directory(folder.at(directory)), fs::create_directory(folder.at(link));
    folder.write(directory + "/" + name, "global_step500\n");
    fs::create_symlink("epoch=3", folder.at(link) + "/" + name);
    const auto before = contents();
    for (const auto& [there, named] : {std::pair(directory, "global_step500"), std::pair(link, "epoch=3")}) {
      const Output output = folder.run(train + there);
      EXPECT_EQ(output.code, 2) << output.errors;
      EXPECT_THAT(output.errors,
                  HasSubstr(std::string("whose \"") + name + "\" names \"" + named + "\" and would be replaced"));
    }
    EXPECT_EQ(contents(), before);
  }
  fs::create_directory(folder.at("locked"));
  folder.write("locked/.lock", "mine");
  EXPECT_THAT(folder.run(train + "locked").errors,
              HasSubstr("holds a file .lock of another program, which would be replaced; name another folder"));
  EXPECT_EQ(folder.read("locked/.lock"), "mine");
  fs::create_directory(folder.at("own"));
  folder.write("own/.lock", "run 1 (process 2 on host)");
  folder.write("own/latest", "step-00000400\n");  // whose steps were removed
  EXPECT_EQ(folder.run(train + "own").code, 0);
}

TEST_F(WrittenFiles, OfARunAreContinuedByIt) {
  const std::string run = "train c.json --metrics m.jsonl --set checkpoint.directory=checkpoints --set run.directory=run ";
  ASSERT_EQ(folder.run(run).code, 0);
  const Output resumed = folder.run(run + "--resume --set training.steps=4");
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  const std::string metrics = folder.read("m.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 4) << metrics;
  EXPECT_EQ(folder.run("report run -o run/report.html").code, 0);
}

}  // namespace
}  // namespace trivet::test
