// Runs `trivet schedule` as a user does. The schedules themselves are tested in tests/pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class ScheduleCommand : public testing::Test {
 protected:
  std::string printed(const std::string& arguments) const {
    const Output output = folder.run("schedule " + arguments);
    EXPECT_EQ(output.code, 0) << arguments << ": " << output.errors;
    EXPECT_EQ(output.errors, "") << arguments;
    return output.text;
  }
  void refused(const std::string& arguments, const std::string& message) const {
    const Output output = folder.run("schedule " + arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.text, "") << arguments;
    EXPECT_EQ(output.errors, "trivet: error: " + message + "\n") << arguments;
  }

  Folder folder;
};

TEST_F(ScheduleCommand, PrintsAGridOfRanksAndTime) {
  EXPECT_EQ(printed("--type zb-h1 --stages 2 --microbatches 3"),
            "zb-h1: P 2, M 3, makespan 10, bubble 10.0 %\n"
            "rank 0   F0 F1    I0 W0 F2 I1 W1 I2 W2\n"
            "rank 1      F0 I0 F1 I1 W0 F2 I2 W1 W2\n"
            "peak microbatches of a stage, from F to W: 2 2\n");
}

// With the given times a step takes (M + P - 1)(F + I + W), of which (P - 1) / (M + P - 1) is idle.
TEST_F(ScheduleCommand, PrintsJsonThatScriptsCanRead) {
  const std::string times = " --forward 1 --backward-input 2.5 --backward-weight 0.5";
  const json result = json::parse(printed("--type 1f1b --stages 4 --microbatches 8 --format json" + times));
  EXPECT_DOUBLE_EQ(result.at("makespan").get<double>(), 11 * 4.0);
  EXPECT_NEAR(result.at("bubble_fraction").get<double>(), 3.0 / 11, 1e-12);
  EXPECT_THAT(result.at("peak_microbatches"), ElementsAre(4, 3, 2, 1));
  ASSERT_EQ(result.at("programs").size(), 4u);
  const json two = json::parse(printed("--type 1f1b --stages 2 --microbatches 2 --format json"));
  EXPECT_THAT(two.at("programs")[0], ElementsAre("0F0", "0F1", "0I0", "0W0", "0I1", "0W1"));
  EXPECT_THAT(two.at("programs")[1], ElementsAre("1F0", "1I0", "1W0", "1F1", "1I1", "1W1"));
}

TEST_F(ScheduleCommand, DealsStagesInChunks) {
  const auto ranks_and_stages = [&](const std::string& arguments) {
    const json programs = json::parse(printed(arguments + " --stages 2 --microbatches 2 --format json")).at("programs");
    return std::pair{programs.size(), programs[0].size() / 6};  // F, I, W of two microbatches
  };
  EXPECT_EQ(ranks_and_stages("--type interleaved --chunks 3"), (std::pair<size_t, size_t>{2, 3}));
  EXPECT_EQ(ranks_and_stages("--type interleaved"), (std::pair<size_t, size_t>{2, 2}));
  EXPECT_EQ(ranks_and_stages("--type zb-v"), (std::pair<size_t, size_t>{2, 2}));
}

// The makespan is M(F + I + W) + (P - 1)F/2. If gradients were sent only after W, as in 1f1b, it would be 28.5.
TEST_F(ScheduleCommand, SendsGradientsBeforeTheWeightsAreDoneWhereTheKindDoes) {
  EXPECT_THAT(printed("--type zb-v --stages 4 --microbatches 8"),
              StartsWith("zb-v: P 4, M 8, V 2, makespan 25.5, bubble 5.9 %\n"));
}

TEST_F(ScheduleCommand, DrawsAPictureThatNamesTheBubble) {
  const std::string svg = printed("--type 1f1b --stages 4 --microbatches 8 --format svg");
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("1f1b: P 4, M 8, makespan 33, bubble 27.3 %"));
}

TEST_F(ScheduleCommand, WritesATraceOfWhichEveryComputationIsAnEvent) {
  const json trace = json::parse(printed("--type zb-v --stages 2 --microbatches 3 --format trace"));
  int computations = 0;
  for (const json& event : trace.at("traceEvents"))
    computations += event.at("ph") == "X" && event.at("tid") == 0;  // waits have another tid
  EXPECT_EQ(computations, 3 * 4 * 3);                               // F, I and W of 4 stages and 3 microbatches
}

TEST_F(ScheduleCommand, ReadsAScheduleFromAFile) {
  folder.write("mine.txt", "# two ranks\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n");
  EXPECT_EQ(printed("--type file:mine.txt"),
            "mine.txt: P 2, M 2, makespan 9, bubble 33.3 %\n"
            "rank 0   F0 F1       I0 W0    I1 W1\n"
            "rank 1      F0 I0 W0 F1 I1 W1\n"
            "peak microbatches of a stage, from F to W: 2 1\n");
  refused("--type file:mine.txt --stages 2",
          "schedule: mine.txt determines --stages, --microbatches and --chunks; leave them out");
  folder.write("stuck.txt", "0B0 0F0\n1F0 1B0\n");
  EXPECT_EQ(folder.run("schedule --type file:stuck.txt").code, 2);
  EXPECT_THAT(folder.run("schedule --type file:stuck.txt").errors, HasSubstr("rank 0"));
  EXPECT_EQ(folder.run("schedule --type file:missing.txt").code, 2);
  EXPECT_THAT(folder.run("schedule --type file:missing.txt").errors, HasSubstr("missing.txt"));
}

TEST_F(ScheduleCommand, SaysWhatItAcceptsInPlaceOfWhatWasGiven) {
  refused("--type zerobubble --stages 2 --microbatches 2",
          "schedule: --type: \"zerobubble\" is not accepted; use one of \"gpipe\", \"1f1b\", \"interleaved\", \"zb-h1\", "
          "\"zb-2p\", \"zb-v\", or file:PATH");
  refused("--type 1f1b --stages 2", "schedule: --type 1f1b needs --stages and --microbatches");
  refused("--type 1f1b --stages 2 --microbatches 2 --format xml",
          "schedule: --format: \"xml\" is not accepted; use one of \"text\", \"json\", \"svg\", \"trace\"; see trivet schedule "
          "--help");
  refused("--type 1f1b --stages 2 --microbatches 2 --forward 0",
          "schedule: --forward: \"0\" is not accepted; use a number above 0; see trivet schedule --help");
  EXPECT_EQ(json::parse(printed("--type gpipe --stages 512 --microbatches 1 --format json")).at("programs").size(), 512);
  refused("--type gpipe --stages 513 --microbatches 1",
          "schedule: --stages: 513 is not accepted; use 1 to 512; see trivet schedule --help");
  refused("--type 1f1b --stages 0 --microbatches 2",
          "schedule: --stages: 0 is not accepted; use 1 to 512; see trivet schedule --help");
  refused("", "schedule: --type is required; see trivet schedule --help");
}

TEST_F(ScheduleCommand, FailsWhereItsOutputIsLost) {
  for (const std::string arguments : {"schedule --type 1f1b --stages 2 --microbatches 2", "config schema", "--version",
                                      "--help", "train --help", "data prepare --help"}) {
    const Output output = folder.run(arguments, "/dev/full");
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_THAT(output.errors, HasSubstr("No space left on device")) << arguments;
  }
}

}  // namespace
}  // namespace trivet::test
