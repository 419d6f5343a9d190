// Nobody reads what a command prints, or nobody reads it any more: a run goes on and is saved, whatever ends it, and a command
// that only prints ends quietly.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>

#include <csignal>
#include <functional>

#include "core/descriptor.h"
#include "tests/cli/running_program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;

// Where a program prints to, and the end at which it is read.
struct Ends {
  Descriptor reading, writing;
};

Ends small_pipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Ends terminal() {
  int master = -1, slave = -1;
  EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  for (int end : {master, slave}) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return {Descriptor(master), Descriptor(slave)};
}

struct Unread {
  const char* name;
  std::function<Ends()> make;
  // After the first step.
  std::function<void(Ends&)> happens;
  int signal;
};

void nothing(Ends&) {}
void reader_goes(Ends& ends) { ends.reading.reset(); }

const Unread kUnread[] = {
    {"TheReaderGoes", small_pipe, reader_goes, SIGINT},
    {"TheReaderStopsReading", small_pipe, nothing, SIGTERM},
    {"TheTerminalGoesAway", terminal, reader_goes, SIGHUP},
    {"TheTerminalIsHeld", terminal, [](Ends& ends) { ::tcflow(ends.writing.number(), TCOOFF); }, SIGXCPU},
    {"TheDiskIsFull",
     [] {
       return Ends{{}, Descriptor(::open("/dev/full", O_WRONLY | O_CLOEXEC))};
     },
     nothing, SIGTERM},
    {"ItWasClosedFromTheBeginning",
     [] {
       return Ends{{}, Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
     },
     nothing, SIGINT},
};

class UnreadOutput : public testing::Test {
 protected:
  UnreadOutput() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": "text.txt"}, "training": {"steps": 100000000}, "steps_per_print": 1, "train_batch_size": 1,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "checkpoint": {"directory": "checkpoints"}
    })");
  }
  static std::string line_of_step(int64_t step) { return "{\"step\": " + std::to_string(step) + ","; }

  Folder folder;
};

class UnreadTraining : public UnreadOutput, public testing::WithParamInterface<Unread> {};

INSTANTIATE_TEST_SUITE_P(All, UnreadTraining, testing::ValuesIn(kUnread), [](const auto& given) { return given.param.name; });

TEST_P(UnreadTraining, GoesOnAndIsSaved) {
  const Unread& unread = GetParam();
  Ends ends = unread.make();
  RunningProgram program(folder, {"train", "config.json", "--metrics", "metrics.jsonl"}, {},
                         {ends.writing.number(), ends.writing.number()});
  ASSERT_TRUE(program.wait_for("metrics.jsonl", line_of_step(1)));
  unread.happens(ends);
  ASSERT_TRUE(program.wait_for("metrics.jsonl", line_of_step(300)));  // far more lines than the pipe and the terminal hold
  program.send(SIGXFSZ);                                              // a file that may not grow is an error of its writer
  program.send(unread.signal);
  if (unread.signal == SIGHUP || unread.signal == SIGXCPU) {  // comes again, and is no second request
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    program.send(unread.signal);
  }
  EXPECT_EQ(program.wait(), 128 + unread.signal);
  EXPECT_THAT(folder.read("checkpoints/latest"), HasSubstr("step-"));
}

TEST_F(UnreadOutput, OfARunThatIsCompleteDoesNotKeepItFromEnding) {
  const Ends ends = small_pipe();
  RunningProgram program(folder, {"train", "config.json", "--set", "training.steps=100"}, {}, {ends.writing.number(), -1});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(folder.read("err"), HasSubstr("bytes of output were dropped: nobody read them"));
}

TEST_F(UnreadOutput, OfTrainingIsReportedOnce) {
  Ends ends = small_pipe();
  ends.reading.reset();
  RunningProgram program(folder, {"train", "config.json", "--set", "training.steps=20"}, {}, {ends.writing.number(), -1});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(folder.read("err"), HasSubstr("trivet: standard output cannot be written: Broken pipe; the command goes on, and "
                                            "what it prints there is lost\n"));
}

// `ulimit -t` alone: the system kills at the limit, without a signal before.
TEST_F(UnreadOutput, ALimitOfProcessorTimeLeavesTimeToSave) {
  EXPECT_EQ(folder.run_in("bash -c 'ulimit -t 2; exec \"$@\"' bash", "train config.json").code, 128 + SIGXCPU);
  EXPECT_THAT(folder.read("checkpoints/latest"), HasSubstr("step-"));
}

TEST_F(UnreadOutput, OfAPreparationThatIsCompleteIsNoFailureIfItsReaderHasGone) {
  Ends ends = small_pipe();
  ends.reading.reset();
  RunningProgram piped(folder, {"data", "prepare", "text.txt", "-o", "piped.tokens"}, {},
                       {ends.writing.number(), ends.writing.number()});
  EXPECT_EQ(piped.wait(), 0);
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  RunningProgram onto_full_disk(folder, {"data", "prepare", "text.txt", "-o", "full.tokens"}, {}, {full.number(), -1});
  EXPECT_EQ(onto_full_disk.wait(), 0);
  EXPECT_THAT(folder.read("err"), HasSubstr("what it prints there is lost"));
  EXPECT_EQ(folder.read("piped.tokens"), folder.read("full.tokens"));
  RunningProgram of_json(folder, {"data", "prepare", "text.txt", "-o", "json.tokens", "--json"}, {}, {full.number(), -1});
  EXPECT_EQ(of_json.wait(), 2) << "what it prints is the result";
  EXPECT_THAT(folder.read("err"),
              HasSubstr("its result, which it prints, is lost: standard output cannot be written: No space"));
}

// As a program that SIGPIPE ends, also where that signal is ignored.
TEST_F(UnreadOutput, OfACommandThatOnlyPrintsEndsItQuietly) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"plan", "config.json"}, {"config", "explain", "config.json", "--json"}, {"config", "reference"}}) {
    for (const bool ignored : {false, true}) {
      Ends ends = small_pipe();
      ends.reading.reset();
      const auto before = ::signal(SIGPIPE, ignored ? SIG_IGN : SIG_DFL);
      RunningProgram program(folder, arguments, {}, {ends.writing.number(), -1});
      const int code = program.wait();
      ::signal(SIGPIPE, before);
      EXPECT_EQ(code, ignored ? 128 + SIGPIPE : -SIGPIPE) << arguments[1];
      EXPECT_EQ(folder.read("err"), "") << arguments[1];
    }
  }
}

}  // namespace
}  // namespace trivet::test
