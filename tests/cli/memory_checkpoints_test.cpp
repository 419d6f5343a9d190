// `trivet train` with checkpoint.memory: what a run that was killed continues from, and what is left in memory afterwards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <regex>

#include "tests/cli/running_program.h"

namespace trivet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MemoryCheckpoints : public testing::Test {
 protected:
  MemoryCheckpoints() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    // There are more steps than a test waits for, and each is printed.
    folder.write("config.json", fmt::format(R"({{
      "model": {{"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters", "dropout": 0.1}},
      "data": {{"train": "text.txt"}}, "training": {{"steps": 10000000, "seed": 3}}, "steps_per_print": 1,
      "train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "reproducible": "layout",
      "optimizer": {{"type": "AdamW", "params": {{"lr": 0.001}}}}, "zero_optimization": {{"stage": 2}},
      "checkpoint": {{"directory": "checkpoints", "every_steps": 4, "memory": {{"every_steps": 1, "directory": "{}", "replicas": 0}}}}
    }})",
                                            memory));
  }
  ~MemoryCheckpoints() override { std::filesystem::remove_all(memory); }

  // Kills a run in a later step than the one given.
  void kill_after(int64_t step, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train", "config.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunningProgram program(folder, arguments);
    ASSERT_TRUE(program.wait_for("out", fmt::format("\n{:>8} ", step + 2))) << folder.read("out") << folder.read("err");
    program.send(SIGKILL);
    EXPECT_EQ(program.wait(), -SIGKILL);
  }
  int64_t newest_in(const std::string& directory) const {
    int64_t newest = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      if (const std::string name = entry.path().filename(); name.starts_with("step-"))
        newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    return newest;
  }
  void expect_the_bits_of_an_undisturbed_run(int64_t steps) {
    const std::string whole = folder.at("whole");
    const Output undisturbed = folder.run(fmt::format(
        "train config.json --set checkpoint.directory={} --set checkpoint.memory.every_steps=0 --set training.steps={}", whole,
        steps));
    ASSERT_EQ(undisturbed.code, 0) << undisturbed.errors;
    EXPECT_THAT(folder.run("checkpoint diff checkpoints whole --json").text, HasSubstr("\"equal\": true"));
  }

  Folder folder;
  const std::string memory = fmt::format("/dev/shm/trivet-test-{}", ::getpid());
};

TEST_F(MemoryCheckpoints, ARunThatWasKilledContinuesFromMemory) {
  kill_after(5, {"--ranks", "2", "--set", "checkpoint.every_steps=0"});
  const int64_t step = newest_in(memory);
  ASSERT_GE(step, 5);
  struct stat status {};
  ASSERT_EQ(::stat(memory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  const Output resumed = folder.run(fmt::format("train config.json --resume --ranks 3 --set training.steps={}", step + 2));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.text, AllOf(HasSubstr(fmt::format("{}/step-{:08}", memory, step)),
                                  HasSubstr(fmt::format("resumed after step {}", step)),
                                  HasSubstr("saves   every step into memory, " + memory + ": at most ")));
  EXPECT_TRUE(std::regex_search(resumed.text, std::regex(R"(buffers ([0-9.]+)/\1, total)"))) << "memory is not as planned";
  EXPECT_FALSE(std::filesystem::exists(memory)) << "the last step is on disk";
  expect_the_bits_of_an_undisturbed_run(step + 2);
}

TEST_F(MemoryCheckpoints, WithoutItsMemoryARunContinuesFromDisk) {
  kill_after(9);
  ASSERT_GE(newest_in(memory), newest_in(folder.at("checkpoints")));
  std::filesystem::remove_all(memory);
  const int64_t step = newest_in(folder.at("checkpoints"));
  const Output resumed = folder.run(fmt::format("train config.json --resume --set training.steps={}", step + 2));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.text, HasSubstr(fmt::format("checkpoints/step-{:08}", step)));
  expect_the_bits_of_an_undisturbed_run(step + 2);
}

TEST_F(MemoryCheckpoints, ALastStepThatIsNotOnDiskIsSavedThere) {
  kill_after(5, {"--set", "checkpoint.every_steps=0"});
  const int64_t step = newest_in(memory);
  const Output resumed = folder.run(fmt::format("train config.json --resume --set training.steps={}", step));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_EQ(newest_in(folder.at("checkpoints")), step);
  EXPECT_FALSE(std::filesystem::exists(memory));
  expect_the_bits_of_an_undisturbed_run(step);
}

// The only valid copy of the last step is in memory.
TEST_F(MemoryCheckpoints, ALastStepThatIsDamagedOnDiskIsSavedThereAgain) {
  kill_after(5, {"--set", "checkpoint.every_steps=0"});
  const int64_t step = newest_in(memory);
  const std::string on_disk = folder.at(fmt::format("checkpoints/step-{:08}", step));
  std::filesystem::copy(fmt::format("{}/step-{:08}", memory, step), on_disk);
  std::filesystem::resize_file(on_disk + "/rank-00000.safetensors",
                               std::filesystem::file_size(on_disk + "/rank-00000.safetensors") - 1);
  const Output resumed = folder.run(fmt::format("train config.json --resume --set training.steps={}", step));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.text, HasSubstr(fmt::format("{}/step-{:08}", memory, step)));
  EXPECT_FALSE(std::filesystem::exists(memory));
  expect_the_bits_of_an_undisturbed_run(step);
}

// It is neither saved again nor kept in memory.
TEST_F(MemoryCheckpoints, ALastStepThatIsReadFromDiskIsThere) {
  kill_after(9);
  std::filesystem::remove_all(memory);
  const int64_t step = newest_in(folder.at("checkpoints"));
  const std::string manifest = fmt::format("checkpoints/step-{:08}/manifest.json", step), before = folder.read(manifest);
  const Output resumed = folder.run(fmt::format("train config.json --resume --set training.steps={}", step));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_EQ(folder.read(manifest), before);
  EXPECT_FALSE(std::filesystem::exists(memory));
}

TEST_F(MemoryCheckpoints, AStopSignalSavesToDiskAndLeavesNothingInMemory) {
  RunningProgram program(folder, {"train", "config.json"});
  ASSERT_TRUE(program.wait_for("out", "\n       3 ")) << folder.read("err");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_FALSE(std::filesystem::exists(memory));
  EXPECT_GE(newest_in(folder.at("checkpoints")), 3);
}

TEST_F(MemoryCheckpoints, ThoseOfAnotherRunAreRefused) {
  kill_after(1, {"--set", "checkpoint.every_steps=0"});
  const Output without_resume = folder.run("train config.json");
  EXPECT_EQ(without_resume.code, 2);
  EXPECT_THAT(without_resume.errors,
              AllOf(HasSubstr("checkpoint.memory.directory: \"" + memory + "\" holds steps up to "),
                    HasSubstr("add --resume to continue that run, or remove this directory on all hosts")));
  const std::string other_memory = " --set checkpoint.memory.directory=" + memory + "-other";
  const Output other = folder.run("train config.json --set training.steps=1 --set checkpoint.directory=other" + other_memory);
  ASSERT_EQ(other.code, 0) << other.errors;
  const Output elsewhere = folder.run("train config.json --resume --set checkpoint.directory=other");
  EXPECT_EQ(elsewhere.code, 2);
  EXPECT_THAT(elsewhere.errors, HasSubstr("\"" + memory + "\" holds steps of run "));
}

TEST_F(MemoryCheckpoints, AStartThatIsRefusedLeavesNoDirectory) {
  ASSERT_EQ(folder.run("train config.json --set training.steps=1").code, 0);
  EXPECT_EQ(folder.run("train config.json --set training.steps=1").code, 2);
  EXPECT_FALSE(std::filesystem::exists(memory));
}

TEST_F(MemoryCheckpoints, ARunWhoseDiskIsLostContinuesOnAnotherOne) {
  kill_after(5);
  const int64_t step = newest_in(memory);
  std::filesystem::remove_all(folder.at("checkpoints"));
  const Output resumed =
      folder.run(fmt::format("train config.json --resume --set checkpoint.directory=other --set training.steps={}", step + 1));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.text, HasSubstr(fmt::format("resumed after step {}", step)));
  EXPECT_THAT(resumed.errors, HasSubstr("/checkpoints\" is not there any more; the run whose steps are in \"" + memory));
  EXPECT_EQ(newest_in(folder.at("other")), step + 1);
}

TEST_F(MemoryCheckpoints, ACopyOfARunDoesNotGoOnFromItsSteps) {
  kill_after(5);
  const int64_t step = newest_in(memory);
  std::filesystem::copy(folder.at("checkpoints"), folder.at("copy"), std::filesystem::copy_options::recursive);
  for (const char* directory : {"copy", "empty"}) {
    const Output refused = folder.run(fmt::format("train config.json --resume --set checkpoint.directory={}", directory));
    EXPECT_EQ(refused.code, 2) << directory;
    EXPECT_THAT(refused.errors, AllOf(HasSubstr("holds steps of the run whose checkpoint.directory is \""),
                                      HasSubstr("/checkpoints\", and this one's is \"")));
  }
  const Output resumed = folder.run(fmt::format("train config.json --resume --set training.steps={}", step + 1));
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.text, HasSubstr(fmt::format("resumed after step {}", step)));
}

TEST_F(MemoryCheckpoints, DirectoriesOfOthersAreRefused) {
  std::filesystem::create_directory(memory);
  std::filesystem::permissions(memory, std::filesystem::perms(0755));
  const Output open_to_others = folder.run("train config.json --set training.steps=1");
  EXPECT_EQ(open_to_others.code, 2);
  EXPECT_THAT(open_to_others.errors, HasSubstr("config.json: checkpoint.memory.directory: \"" + memory +
                                               "\" has mode 755 instead of 700, so that others may use it"));
  std::filesystem::remove(memory);
  std::filesystem::create_directory_symlink(folder.path(), memory);
  EXPECT_EQ(folder.run("train config.json --set training.steps=1").code, 2);
  const Output on_no_memory =
      folder.run("train config.json --set training.steps=1 --set checkpoint.memory.directory=/proc/run");
  EXPECT_EQ(on_no_memory.code, 2);
  EXPECT_THAT(on_no_memory.errors,
              HasSubstr("\"/proc/run\" is not on a file system in memory; name a directory below /dev/shm"));
}

TEST_F(MemoryCheckpoints, ARunGoesOnWithoutADirectoryThatHasVanished) {
  RunningProgram program(folder, {"train", "config.json", "--set", "checkpoint.every_steps=0"});
  ASSERT_TRUE(program.wait_for("out", "\n       3 ")) << folder.read("err");
  const std::string away = memory + "-away";
  std::filesystem::rename(memory, away);
  const int64_t newest = newest_in(away);
  std::filesystem::remove_all(away);
  ASSERT_TRUE(program.wait_for("err", "; training continues, and the next one is tried; not each further failure in a row"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_GT(newest_in(folder.at("checkpoints")), newest) << "the last step is on disk";
  const std::string errors = folder.read("err");
  EXPECT_EQ(errors.find("No such file"), errors.rfind("No such file")) << "said once: " << errors;
  EXPECT_EQ(errors.find("training continues"), errors.rfind("training continues")) << "said once: " << errors;
}

// A file system of 100 KiB, which one step of this model does not fit into.
TEST_F(MemoryCheckpoints, TooLittleMemoryIsAnErrorAtTheStartAndAWarningAfterALoss) {
  std::filesystem::create_directory(memory);
  const std::string wrapper =
      fmt::format("unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=100k none {} && exec \"$@\"' sh", memory);
  if (std::system((wrapper + " true 2> /dev/null").c_str()) != 0) GTEST_SKIP() << "no file system can be mounted here";
  const std::string train =
      fmt::format("train config.json --set training.steps=3 --set checkpoint.memory.directory={}/run", memory);
  const Output first = folder.run_in(wrapper, train);
  EXPECT_EQ(first.code, 2);
  EXPECT_THAT(first.errors,
              AllOf(HasSubstr("config.json: checkpoint.memory.directory: the steps in \"" + memory + "/run\" need 0."),
                    HasSubstr("MiB are free there; make that file system larger if the host has the memory, or set "
                              "checkpoint.memory.every_steps to 0")));
  const Output resumed = folder.run_in(wrapper, train + " --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, AllOf(HasSubstr("MiB are free there; saves into memory may fail"),
                                    HasSubstr("checkpoint of step 1 was not written"), HasSubstr("No space left on device"),
                                    HasSubstr("training continues, and the next one is tried")));
  EXPECT_EQ(newest_in(folder.at("checkpoints")), 3);
}

TEST_F(MemoryCheckpoints, TrainingWaitsForThoseOfOffloadedStates) {
  const std::string train =
      "train config.json --set training.steps=2 --set zero_optimization.offload_optimizer.device=nvme --set "
      "zero_optimization.offload_optimizer.nvme_path=" +
      folder.path();
  const std::string warning =
      "checkpoint.memory.every_steps: 1: states are offloaded, so training waits for each of these saves";
  const Output often = folder.run(train);
  EXPECT_EQ(often.code, 0) << often.errors;
  EXPECT_THAT(often.errors, HasSubstr(warning));
  const Output seldom = folder.run(train + " --set checkpoint.directory=second --set checkpoint.memory.every_steps=10");
  EXPECT_EQ(seldom.code, 0) << seldom.errors;
  EXPECT_THAT(seldom.errors, Not(HasSubstr("states are offloaded")));
}

TEST_F(MemoryCheckpoints, APlanSaysWhatTheyTake) {
  const std::string plan = "plan config.json --world-size 4 --set model.vocabulary=bytes --set checkpoint.memory.replicas=1";
  const std::string text = folder.run(plan).text;
  EXPECT_THAT(text, HasSubstr("checkpoints in memory, in " + memory));
  EXPECT_THAT(folder.run(plan + " --json").text, HasSubstr("\"memory_checkpoint\""));
  EXPECT_THAT(folder.run(plan + " --set checkpoint.memory.every_steps=0").text, Not(HasSubstr("in memory")));
}

}  // namespace
}  // namespace trivet::test
