#include "report/monitor/csv.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::monitor {
namespace {

using data::file_content;
using test::TemporaryFolder;

StepMetrics metrics_at(int64_t samples, double lr) {
  StepMetrics metrics;
  metrics.step = samples / 8;
  metrics.samples = samples;
  metrics.lr = lr;
  metrics.loss = 4.25;
  metrics.grad_norm = 1;
  return metrics;
}

TEST(CsvMonitor, WritesWhatDeepSpeedWrites) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  monitor.on_step(metrics_at(8, 0.001));
  monitor.on_step(metrics_at(16, 0.0009));
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_lr.csv")), "step,lr\r\n8,0.001\r\n16,0.0009\r\n");
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_train_loss.csv")), "step,train_loss\r\n8,4.25\r\n16,4.25\r\n");
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_grad_norm.csv")), "step,grad_norm\r\n8,1.0\r\n16,1.0\r\n");
  EXPECT_FALSE(std::filesystem::exists(folder.at("out/job/Train_Samples_loss_scale.csv")));
}

TEST(CsvMonitor, EqualsTheGoldenFile) {
  const std::string golden = data::shared_data("golden/Train_Samples_lr.csv");
  SKIP_WITHOUT(golden);
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  monitor.on_step(metrics_at(8, 0.001));
  monitor.on_step(metrics_at(16, 0.0009));
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_lr.csv")), file_content(golden));
}

TEST(CsvMonitor, LossScaleAndEvaluationHaveFilesOfTheirOwn) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  StepMetrics metrics = metrics_at(8, 0.001);
  metrics.loss_scale = 65536;
  monitor.on_step(metrics);
  monitor.on_evaluation({.step = 1, .loss = 2.5, .samples = 8});
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_loss_scale.csv")), "step,loss_scale\r\n8,65536.0\r\n");
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_eval_loss.csv")), "step,eval_loss\r\n8,2.5\r\n");
}

TEST(CsvMonitor, WithoutTargetsThereIsNoMean) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  StepMetrics metrics = metrics_at(8, 0.001);
  metrics.without_targets = metrics.skipped = true;
  metrics.rewards = Rewards{};
  monitor.on_step(metrics);
  monitor.on_evaluation({.step = 1, .samples = 8, .without_targets = true, .correct = 0});
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_lr.csv")), "step,lr\r\n8,0.001\r\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.at("out/job")), {}), 1);
}

TEST(CsvMonitor, RewardsOfPairsHaveFilesOfTheirOwn) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  StepMetrics metrics = metrics_at(8, 0.001);
  metrics.targets = 8;
  metrics.correct = 6;
  metrics.rewards = {0.5, -0.25};
  monitor.on_step(metrics);
  monitor.on_evaluation({.step = 1, .loss = 2.5, .samples = 8, .targets = 4, .correct = 1, .rewards = {{-1, -3}}});
  const auto content = [&](const std::string& tag) { return file_content(folder.at("out/job/Train_Samples_" + tag + ".csv")); };
  EXPECT_EQ(content("rewards_chosen"), "step,chosen\r\n8,0.5\r\n");
  EXPECT_EQ(content("rewards_rejected"), "step,rejected\r\n8,-0.25\r\n");
  EXPECT_EQ(content("rewards_margins"), "step,margins\r\n8,0.75\r\n");
  EXPECT_EQ(content("rewards_accuracies"), "step,accuracies\r\n8,0.75\r\n");
  EXPECT_EQ(content("eval_rewards_chosen"), "step,chosen\r\n8,-1.0\r\n");
  EXPECT_EQ(content("eval_rewards_rejected"), "step,rejected\r\n8,-3.0\r\n");
  EXPECT_EQ(content("eval_rewards_margins"), "step,margins\r\n8,2.0\r\n");
  EXPECT_EQ(content("eval_accuracy"), "step,eval_accuracy\r\n8,0.25\r\n");
}

TEST(CsvMonitor, AccuracyHasAFileOfItsOwnIfTheModelChoosesClasses) {
  const TemporaryFolder folder;
  CsvMonitor monitor(folder.at("out"), "job");
  monitor.on_evaluation({.step = 1, .loss = 2.5, .samples = 8, .targets = 16, .correct = 12});
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_eval_accuracy.csv")), "step,eval_accuracy\r\n8,0.75\r\n");
}

TEST(CsvMonitor, ARestartAppendsTheHeaderAgainAsDeepSpeedDoes) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) CsvMonitor(folder.at("out"), "job").on_step(metrics_at(8, 0.001));
  EXPECT_EQ(file_content(folder.at("out/job/Train_Samples_lr.csv")), "step,lr\r\n8,0.001\r\nstep,lr\r\n8,0.001\r\n");
}

}  // namespace
}  // namespace trivet::monitor
