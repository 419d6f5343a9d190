// The descriptions of keys (docs/config.md) agree with what the engine does.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "engine/config/key_table.h"
#include "engine/optimizer/loss_scale.h"
#include "engine/optimizer/lr_schedule.h"
#include "report/monitor/csv.h"
#include "tests/config/support.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string meaning_of(const std::string& path) { return config::key_table().find(path)->meaning; }

struct InEmptyFolder {
  const test::TemporaryFolder folder;
  const fs::path before = fs::current_path();
  InEmptyFolder() { fs::current_path(folder.path()); }
  ~InEmptyFolder() { fs::current_path(before); }
};

TEST(Meanings, CsvFilesGoBelowTheCurrentFolderWhereOutputPathIsEmpty) {
  const InEmptyFolder folder;
  const MonitorConfig csv;
  monitor::CsvMonitor(csv.output_path, csv.job_name).on_step({.step = 1, .samples = 8});
  EXPECT_TRUE(fs::exists("DeepSpeedJobName/Train_Samples_lr.csv"));
  EXPECT_THAT(meaning_of("csv_monitor.output_path"), HasSubstr("empty: the current directory"));
}

TEST(Meanings, MoreStepsChangeARateWhoseScheduleEndsWithTheTraining) {
  const auto rate = [](const char* type, const char* params, const char* steps) {
    const Config config = parse_config(std::string(R"({"scheduler": {"type": ")") + type + R"(", "params": {)" + params +
                                           R"(}}, "training": {"steps": )" + steps + "}}",
                                       "a");
    return lr_at(config, 8, 5);
  };
  for (const char* type : {"Linear", "Cosine", "WarmupDecayLR", "WarmupCosineLR"}) {
    EXPECT_NE(rate(type, R"("warmup_num_steps": 2)", "10"), rate(type, R"("warmup_num_steps": 2)", "20")) << type;
    const char* fixed = R"("warmup_num_steps": 2, "total_num_steps": 10)";
    EXPECT_EQ(rate(type, fixed, "10"), rate(type, fixed, "20")) << type;
  }
  EXPECT_THAT(meaning_of("scheduler.params.total_num_steps"),
              HasSubstr("0: the last step of the run (training.steps, or training.epochs), so that resuming with more of them "
                        "changes the learning rate"));
}

TEST(Meanings, AnOverflowAtTheSmallestLossScaleEndsTheRunHoweverManySkipsAreAllowed) {
  const Config config = parse_config(R"({"fp16": {"enabled": true, "initial_scale_power": 1, "hysteresis": 1},
                                         "training": {"stop_after_skipped": 1000}})",
                                     "a");
  LossScale scale(config.fp16);
  scale.update(true);  // 2 to 1
  EXPECT_THROW(scale.update(true), NumericsError);
  EXPECT_THAT(meaning_of("training.stop_after_skipped"), HasSubstr("an overflow at fp16.min_loss_scale ends it instead"));
}

}  // namespace
}  // namespace trivet
