// A pipeline's programs can be read from a file. They equal those of a generated schedule, and are refused if they do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "engine/program.h"
#include "pipeline/schedules/schedules.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using testing::HasSubstr;

class ScheduleFile : public testing::Test {
 protected:
  // A config for two ranks with four microbatches.
  Config config(const std::string& text) {
    std::ofstream(path_) << text;
    Config config = small_config();
    config.parallel.pipeline = 2;
    config.batch.train_batch_size = 4;
    config.pipeline.schedule_file = path_;
    return config;
  }
  std::string refusal(const std::string& text) {
    try {
      plan_of(config(text), 2);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.at("schedule");
};

TEST_F(ScheduleFile, MakesTheProgramsOfAGeneratedSchedule) {
  std::string text;
  for (const pipeline::Program& program : pipeline::generate(ScheduleKind::GPipe, {2, 4, 1})) {
    for (const pipeline::Instruction& instruction : program) text += pipeline::to_string(instruction) + " ";
    text += "\n";
  }
  const Config with_file = config(text);
  Config generated = with_file;
  generated.pipeline.schedule_file.clear();
  generated.pipeline.schedule = ScheduleKind::GPipe;
  const Plan of_file = plan_of(with_file, 2), of_kind = plan_of(generated, 2);
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(of_file.ranks[rank].programs.train, of_kind.ranks[rank].programs.train) << rank;
}

TEST_F(ScheduleFile, IsRefusedWhereItIsForOtherRanksOrMicrobatches) {
  EXPECT_EQ(refusal("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n"),
            "small.json: pipeline.schedule: \"" + path_ +
                "\" is a schedule for parallel.pipeline 1, but it is 2 here; make them equal");
  EXPECT_THAT(refusal("0F0 0B0\n1F0 1B0\n2F0 2B0\n"), HasSubstr("is a schedule for parallel.pipeline 3"));
  EXPECT_THAT(refusal("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"),
              HasSubstr("is for 2 microbatches, but a step has 4 on each data rank (gradient_accumulation_steps)"));
  EXPECT_THAT(refusal("0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4\n1F0 1F1 1F2 1F3 1F4 1B0 1B1 1B2 1B3 1B4\n"),
              HasSubstr("is for 5 microbatches"));
}

// The small model has five blocks: embedding, three layers, head.
TEST_F(ScheduleFile, IsRefusedWhereItHasMoreStagesThanTheModelHasBlocks) {
  std::string text;
  for (const int rank : {0, 1}) {
    for (int stage = rank; stage < 6; stage += 2)
      for (int m = 0; m < 4; ++m) text += std::to_string(stage) + "F" + std::to_string(m) + " ";
    for (int stage = 4 + rank; stage >= 0; stage -= 2)
      for (int m = 0; m < 4; ++m) text += std::to_string(stage) + "B" + std::to_string(m) + " ";
    text += "\n";
  }
  EXPECT_THAT(refusal(text), HasSubstr("stages"));
}

}  // namespace
}  // namespace trivet
