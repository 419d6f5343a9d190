#include "report/read_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "report/event_log.h"
#include "report/monitor/jsonl.h"
#include "report/predictions_file.h"
#include "report/run_charts.h"
#include "report/run_files.h"
#include "report/run_page.h"
#include "tests/report/run_examples.h"
#include "tests/support/temporary_folder.h"

namespace trivet::report {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

monitor::StepMetrics metrics_of(int64_t step) {
  monitor::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 10 - static_cast<double>(step);
  metrics.lr = 0.5;
  metrics.grad_norm = 2;
  metrics.targets = 32;
  metrics.step_ms = 50;
  metrics.targets_per_second = 640;
  metrics.memory_bytes = 1000;
  return metrics;
}

// Writes the folder of a run of steps `done` + 1 to `last` with the monitors that write it.
void write_run(const TemporaryFolder& folder, int64_t done, int64_t last, bool ends) {
  monitor::Monitors monitors;
  monitors.add(std::make_unique<monitor::JsonlMonitor>(folder.at(kMetricsFile)));
  monitors.add(std::make_unique<EventLog>(folder.at(kEventsFile)));
  monitors.on_start({.facts = {{"model", "gpt"}}, .steps_done = done, .total_steps = 8});
  for (int64_t step = done + 1; step <= last; ++step) {
    monitors.on_step(metrics_of(step));
    monitors.on_evaluation({.step = step, .loss = std::abs(static_cast<double>(step) - 3), .targets = 32});
  }
  monitors.on_checkpoint(last);
  monitors.on_note({"note", "a \"word\" \xff"});
  if (ends) monitors.on_end({.facts = {{"done", "all"}}, .memory = {{"parameters", 100, 90}}});
}

TEST(ReadRun, FindsWhatTheMonitorsWrote) {
  const TemporaryFolder folder;
  write_run(folder, 0, 4, true);
  folder.write(kPlanFile, R"({"mesh": {"pipeline": 2, "data": 3}, "model_flops_per_step": 5e9,
      "memory_bytes": {"parameters": 7, "total": 7}, "communication_bytes": {"gather": 11}})");
  folder.write(kConfigFile, R"({"run": {"peak_tflops": 0.5}})");
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.state, RunState::Ended);
  EXPECT_EQ(run.total_steps, 8);
  ASSERT_EQ(run.steps.count(), 4);
  EXPECT_EQ(run.steps.last().step, 4);
  EXPECT_EQ(run.steps.last().loss, 6);
  EXPECT_EQ(run.steps.last().lr, 0.5);
  EXPECT_EQ(run.steps.last().grad_norm, 2);
  EXPECT_EQ(run.steps.last().step_ms, 50);
  EXPECT_EQ(run.steps.last().targets_per_second, 640);
  EXPECT_EQ(run.targets, monitor::kTokens);
  EXPECT_TRUE(std::isnan(run.best_accuracy));
  EXPECT_EQ(run.steps.last().memory_bytes, 1000);
  EXPECT_EQ(run.best_validation_loss, 0);
  EXPECT_EQ(run.best_validation_step, 3);
  EXPECT_THAT(run.facts, ElementsAre(Pair("model", "gpt")));
  EXPECT_THAT(run.end_facts, ElementsAre(Pair("done", "all")));
  ASSERT_EQ(run.memory.size(), 1u);
  EXPECT_EQ(run.memory[0].measured_bytes, 90);
  ASSERT_EQ(run.notes.size(), 2u);
  EXPECT_EQ(run.notes[0].what, "checkpoint");
  EXPECT_EQ(run.notes[0].step, 4);
  EXPECT_EQ(run.notes[1].text, "a \"word\" \xef\xbf\xbd");  // a byte that is not UTF-8 is replaced
  EXPECT_EQ(run.plan.ranks, 6);
  EXPECT_EQ(run.plan.flops_per_step, 5e9);
  EXPECT_EQ(run.plan.peak_flops, 5e11);
  ASSERT_EQ(run.plan.memory.size(), 1u);
  EXPECT_EQ(run.plan.communication.at(0).value, 11);
}

// A line of metrics says what its targets are, also in a file of its own.
TEST(ReadRun, ARunOnImagesHasImagesAndAccuracy) {
  const TemporaryFolder folder;
  monitor::JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 4, .targets = monitor::kImages});
  for (int64_t step = 1; step <= 4; ++step) {
    monitor.on_step(metrics_of(step));
    monitor.on_evaluation({.step = step, .loss = 1, .targets = 200, .correct = step == 3 ? 190 : 150});
  }
  const RunData run = read_run(folder.at("m.jsonl"));
  EXPECT_EQ(run.targets, monitor::kImages);
  EXPECT_EQ(run.steps.last().targets_per_second, 640);
  EXPECT_EQ(run.evaluations.last().accuracy, 0.75);
  EXPECT_EQ(run.best_accuracy, 0.95);
  EXPECT_EQ(run.best_accuracy_step, 3);
}

TEST(ReadRun, TheFullestExpertOfAllBlocksHasAChart) {
  const TemporaryFolder folder;
  monitor::JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 2});
  for (const int64_t most : {6, 12}) {
    monitor::StepMetrics metrics = metrics_of(most / 6);
    metrics.experts = {{"blocks.1", {3, 3, 3, 3}}, {"blocks.2", {most, 12 - most, 0, 0}}};
    monitor.on_step(metrics);
  }
  const RunData run = read_run(folder.at("m.jsonl"));
  EXPECT_EQ(run.steps.points().front().fullest, 2);
  EXPECT_EQ(run.steps.last().fullest, 4);
  EXPECT_THAT(to_page({&run, 1}), HasSubstr("fullest expert"));
}

// Files of earlier versions have a loss of 0 there.
TEST(ReadRun, WithoutTargetsThereIsNoLoss) {
  const TemporaryFolder folder;
  for (const bool earlier : {false, true}) {
    monitor::JsonlMonitor monitor(folder.at("m.jsonl"));
    monitor.on_start({.total_steps = 3});
    for (int64_t step = 1; step <= 3; ++step) {
      monitor::StepMetrics metrics = metrics_of(step);
      if (step > 1) metrics.targets = 0, metrics.without_targets = !earlier, metrics.loss = 0;
      monitor.on_step(metrics);
      if (step > 1) monitor.on_evaluation({.step = step, .loss = 0, .targets = 0, .without_targets = !earlier});
    }
    const RunData run = read_run(folder.at("m.jsonl"));
    EXPECT_EQ(run.steps_without_targets, 2);
    for (const double value : {run.steps.last().loss, run.steps.last().grad_norm, run.evaluations.last().loss,
                               run.best_validation_loss, median_targets_per_second(run)})
      EXPECT_TRUE(std::isnan(value)) << value;
    const std::string page = to_page({&run, 1});
    EXPECT_THAT(page, HasSubstr("<dd>none: no targets</dd>"));
    EXPECT_THAT(page, HasSubstr("best none"));
    EXPECT_THAT(page, Not(HasSubstr(">nan")));
  }
}

TEST(ReadRun, ARunOnPairsHasPairsAndAccuracy) {
  const TemporaryFolder folder;
  monitor::JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.total_steps = 1, .targets = monitor::kPairs});
  monitor.on_step(metrics_of(1));
  monitor.on_evaluation({.step = 1, .loss = 1, .targets = 200, .correct = 150, .rewards = {{1, 0}}});
  const RunData run = read_run(folder.at("m.jsonl"));
  EXPECT_EQ(run.targets, monitor::kPairs);
  EXPECT_EQ(run.steps.last().targets_per_second, 640);
  EXPECT_EQ(run.evaluations.last().accuracy, 0.75);
}

// A run on images that an earlier version of Trivet began, and that was resumed.
TEST(ReadRun, ImagesThatWereCalledTokensAreStillRead) {
  const TemporaryFolder folder;
  const std::string step =
      R"({"step": 1, "loss": 2, "lr": 1, "grad_norm": 1, "tokens": 32, "step_ms": 5, "tokens_per_second": 320, "memory_bytes": 9})"
      "\n";
  folder.write("m.jsonl", step);
  folder.write("m.evaluation.jsonl", R"({"step": 1, "loss": 2, "tokens": 200, "ms": 1, "correct": 100})"
                                     "\n");
  const RunData earlier = read_run(folder.at("m.jsonl"));
  EXPECT_EQ(earlier.targets, monitor::kTokens);
  EXPECT_EQ(earlier.evaluations.last().accuracy, 0.5);
  monitor::JsonlMonitor monitor(folder.at("m.jsonl"));
  monitor.on_start({.steps_done = 1, .total_steps = 2, .targets = monitor::kImages});
  monitor.on_step(metrics_of(2));
  monitor.on_evaluation({.step = 2, .loss = 1, .targets = 200, .correct = 150});
  const RunData run = read_run(folder.at("m.jsonl"));
  EXPECT_EQ(run.targets, monitor::kImages);
  EXPECT_EQ(run.steps.points().front().targets_per_second, 320);
  EXPECT_EQ(run.steps.last().targets_per_second, 640);
  EXPECT_EQ(run.evaluations.points().front().accuracy, 0.5);
  EXPECT_EQ(run.evaluations.last().accuracy, 0.75);
}

TEST(ReadRun, AccuracyIsAShareOrNotKnown) {
  const auto read = [](const std::string& counts, RunData& run) {
    std::istringstream lines("{\"step\": 1, \"loss\": 2, " + counts + "}\n");
    read_evaluations(lines, "e.jsonl", run);
  };
  RunData none, wrong;
  read(R"("images": 0, "correct": 0)", none);
  EXPECT_TRUE(std::isnan(none.best_accuracy));
  EXPECT_THAT(error_of([&] { read(R"("images": 0, "correct": 3)", wrong); }), HasSubstr("3 is not a number from 0 to 0"));
  EXPECT_THAT(error_of([&] { read(R"("images": 4, "correct": 5)", wrong); }), HasSubstr("5 is not a number from 0 to 4"));
}

monitor::ShownPredictions some_predictions() {
  return {.step = 5,
          .samples = {{.sample = 17, .right = false, .png = std::string("\x89PNG\0\xff", 6), .target = "7", .predicted = "1"},
                      {.sample = 3, .right = true, .before = "a \"b\"\n", .target = "c", .predicted = "c"}}};
}

TEST(ReadRun, FindsThePredictionsOfTheLastEvaluation) {
  const TemporaryFolder folder;
  write_run(folder, 0, 4, true);
  PredictionsFile file(folder.at(kPredictionsFile));
  monitor::ShownPredictions earlier = some_predictions();
  earlier.step = 2;
  file.on_predictions(earlier);
  file.on_predictions(some_predictions());
  const monitor::ShownPredictions read = read_run(folder.path()).predictions, written = some_predictions();
  EXPECT_EQ(read.step, 5);
  ASSERT_EQ(read.samples.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.samples[i].sample, written.samples[i].sample);
    EXPECT_EQ(read.samples[i].right, written.samples[i].right);
    EXPECT_EQ(read.samples[i].png, written.samples[i].png);
    EXPECT_EQ(read.samples[i].before, written.samples[i].before);
    EXPECT_EQ(read.samples[i].target, written.samples[i].target);
    EXPECT_EQ(read.samples[i].predicted, written.samples[i].predicted);
  }
}

TEST(PredictionsFile, IsKeptByARunThatIsResumedAndNotByOneThatBegins) {
  const TemporaryFolder folder;
  PredictionsFile file(folder.at(kPredictionsFile));
  file.on_predictions(some_predictions());
  file.on_start({.steps_done = 5});
  EXPECT_TRUE(std::filesystem::exists(folder.at(kPredictionsFile)));
  monitor::ShownPredictions of_the_beginning = some_predictions();
  of_the_beginning.step = 0;
  file.on_predictions(of_the_beginning);
  file.on_start({.steps_done = 0});
  EXPECT_FALSE(std::filesystem::exists(folder.at(kPredictionsFile)));
}

TEST(PredictionsFile, OfStepsThatAResumedRunRepeatsIsRemoved) {
  const TemporaryFolder folder;
  PredictionsFile file(folder.at(kPredictionsFile));
  file.on_predictions(some_predictions());  // after step 5
  file.on_start({.steps_done = 4});
  EXPECT_FALSE(std::filesystem::exists(folder.at(kPredictionsFile)));
}

// Without this, it would be an obstacle to the report until the next evaluation.
TEST(PredictionsFile, ThatIsDamagedIsRemovedWhenTheRunIsResumed) {
  const TemporaryFolder folder;
  for (const std::string& damaged : {std::string(), std::string(100, '\0'), to_json(some_predictions()).substr(0, 40)}) {
    folder.write(kPredictionsFile, damaged);
    PredictionsFile(folder.at(kPredictionsFile)).on_start({.steps_done = 9});
    EXPECT_FALSE(std::filesystem::exists(folder.at(kPredictionsFile))) << damaged;
  }
}

TEST(PredictionsFile, ThatCannotBeWrittenLeavesNoTemporaryFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.at("predictions.json/taken"));
  testing::internal::CaptureStderr();
  PredictionsFile(folder.at("predictions.json")).on_predictions(some_predictions());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("predictions cannot be written: Is a directory"));
  EXPECT_FALSE(std::filesystem::exists(folder.at("predictions.json.tmp")));
}

TEST(PredictionsFile, ThatCannotBeWrittenIsReportedOnceAndDoesNotEndTheRun) {
  PredictionsFile file("/no/such/folder/predictions.json");
  testing::internal::CaptureStderr();
  file.on_predictions(some_predictions());
  file.on_predictions(some_predictions());
  const std::string log = testing::internal::GetCapturedStderr(), warning =
                                                                      "/no/such/folder/predictions.json: predictions cannot be "
                                                                      "written: No such file or directory; the run continues";
  EXPECT_THAT(log, HasSubstr(warning));
  EXPECT_EQ(log.find(warning), log.rfind(warning));
}

TEST(ReadRun, PredictionsOfSomethingElseAreRefused) {
  const auto refusal = [](const std::string& sample) {
    return error_of([&] { parse_predictions("{\"step\": 1, \"samples\": [" + sample + "]}", "p.json"); });
  };
  EXPECT_EQ(refusal(R"({"sample": 1, "right": true, "target": "a", "predicted": "a"})"), "no error");
  EXPECT_THAT(refusal(R"({"sample": 1, "right": true, "target": "a"})"), HasSubstr("is not what trivet train writes there"));
  EXPECT_THAT(refusal(R"({"sample": -1, "right": true, "target": "a", "predicted": "a"})"),
              HasSubstr("-1 is not a number from 0"));
  EXPECT_THAT(refusal(R"({"sample": 1, "right": true, "target": "a", "predicted": "a", "png": "a<=="})"),
              HasSubstr("is not text in base64"));
}

TEST(ReadRun, ARunThatWasKilledIsUnfinishedAndItsIncompleteLineIsLeftOut) {
  const TemporaryFolder folder;
  write_run(folder, 0, 4, false);
  folder.write(kMetricsFile, folder.read(kMetricsFile) + monitor::to_json_line(metrics_of(5)).substr(0, 40));
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.state, RunState::Unfinished);
  EXPECT_EQ(run.steps.count(), 4);
}

TEST(ReadRun, AFileWithoutALineOfMetricsIsNoRun) {
  const TemporaryFolder folder;
  for (const std::string& text : {std::string(), std::string(1000, '[')}) {
    folder.write("m.jsonl", text);
    EXPECT_THAT([&] { read_run(folder.at("m.jsonl")); },
                testing::ThrowsMessage<DataError>(testing::HasSubstr("m.jsonl: holds no line of metrics")));
  }
}

TEST(ReadRun, AResumedRunIsOneRunWithANoteOfItsStart) {
  const TemporaryFolder folder;
  write_run(folder, 0, 4, false);
  write_run(folder, 2, 8, true);
  const RunData run = read_run(folder.path());
  EXPECT_EQ(run.starts, 2);
  EXPECT_EQ(run.steps.count(), 8);
  EXPECT_EQ(run.state, RunState::Ended);
  ASSERT_GE(run.notes.size(), 3u);
  EXPECT_EQ(run.notes[2].text, "start number 2");
  EXPECT_TRUE(run.known_starts.empty());
  folder.write(kStartsFile, R"({"step": 0, "hosts": ["a", "a", "b"]})"
                            "\n"
                            R"({"step": 2, "hosts": ["a"]})"
                            "\n{}\n");
  const auto starts = read_run(folder.path()).known_starts;
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[0].ranks, 3);
  EXPECT_EQ(starts[1].steps_done, 2);
  EXPECT_EQ(starts[1].ranks, 1);
  EXPECT_EQ(starts[2].ranks, 0);
  EXPECT_EQ(run.notes[2].step, 2);
}

TEST(ReadRun, AFileOfMetricsAloneIsARun) {
  const TemporaryFolder folder;
  write_run(folder, 0, 4, true);
  const RunData run = read_run(folder.at(kMetricsFile));
  EXPECT_EQ(run.steps.count(), 4);
  EXPECT_EQ(run.evaluations.count(), 4);
  EXPECT_EQ(run.total_steps, 0);
}

TEST(ReadRun, NumbersThatAreNotFiniteAndSkippedStepsShow) {
  std::istringstream lines(R"({"step": 1, "loss": null, "lr": 0.5, "grad_norm": null, "step_ms": 1, "tokens_per_second": 2, )"
                           R"("memory_bytes": 3, "loss_scale": 32768, "skipped": true})"
                           "\n");
  RunData run;
  read_steps(lines, "m", run);
  ASSERT_EQ(run.steps.count(), 1);
  EXPECT_TRUE(std::isnan(run.steps.last().loss));
  EXPECT_TRUE(run.steps.last().skipped);
  EXPECT_EQ(run.steps.last().loss_scale, 32768);
}

TEST(ReadRun, AFolderOfNoRunIsNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { read_run(folder.path()); }),
            folder.at("metrics.jsonl") +
                ": there is no such file, so this is not the folder of a run that has begun; use a "
                "folder that run.directory names, as trivet train left it");
  EXPECT_EQ(error_of([&] { read_run("/dev/null"); }),
            "/dev/null: is a pipe or a device; use a folder that run.directory names, as trivet train left it");
}

// To open a pipe would wait for its other end.
TEST(ReadRun, WhatIsNoFileIsNamed) {
  for (const std::string name : {kMetricsFile, kEventsFile, kPlanFile}) {
    const TemporaryFolder folder;
    if (name != kMetricsFile) write_run(folder, 0, 2, true);
    std::filesystem::remove(folder.at(name));
    ASSERT_EQ(::mkfifo(folder.at(name).c_str(), 0600), 0);
    EXPECT_THAT(error_of([&] { read_run(folder.path()); }), HasSubstr(name + ": is not a file"));
  }
  const TemporaryFolder folder;
  write_run(folder, 0, 2, true);
  std::filesystem::create_symlink(kConfigFile, folder.at(kConfigFile));
  EXPECT_THAT(error_of([&] { read_run(folder.path()); }), HasSubstr("Too many levels of symbolic links"));
}

TEST(ReadRun, ALineThatIsSomethingElseIsNamed) {
  const auto wrong = [](const std::string& line) {
    RunData run;
    std::istringstream one(line + "\n");
    return error_of([&] { read_steps(one, "m.jsonl", run); });
  };
  const std::string advice = "; use a folder that run.directory names, as trivet train left it";
  EXPECT_EQ(wrong("hello"), "m.jsonl:1: \"hello\" is not what trivet train writes there" + advice);
  EXPECT_EQ(wrong("7"), "m.jsonl:1: is neither an object nor a list" + advice);
  EXPECT_EQ(wrong("{\"step\": -1}"), "m.jsonl:1: -1 is not a number from 0 to 1125899906842624" + advice);
  EXPECT_EQ(wrong("{\"step\": 1e300}"), "m.jsonl:1: 1e+300 is not a number from 0 to 1125899906842624" + advice);
  EXPECT_EQ(wrong("{\"step\": 18446744073709551615}"),
            "m.jsonl:1: 18446744073709551615 is not a number from 0 to 1125899906842624" + advice);
  EXPECT_EQ(wrong("{\"step\": 1, \"loss\": \"low\"}"),
            "m.jsonl:1: \"{\"step\": 1, \"loss\": \"low\"}\" is not what trivet train writes there" + advice);
  EXPECT_EQ(wrong(std::string(20, '[') + std::string(20, ']')), "m.jsonl:1: is nested deeper than 16 levels" + advice);
  EXPECT_EQ(wrong("{\"step\": \"" + std::string(1 << 20, 'a') + "\"}"),
            "m.jsonl:1: the line has more than 1048576 bytes" + advice);
}

// A category has one colour on the page of a run that goes on and of one that has ended.
TEST(ReadRun, MemoryOfAPlanHasTheOrderOfAFinishedRun) {
  const PlanFigures figures = parse_plan_figures(R"({"mesh": {"data": 1}, "model_flops_per_step": 1, "memory_bytes":
      {"parameters": 1, "gradients": 2, "optimizer": 3, "activations": 4, "buffers": 5, "total": 15}})",
                                                 "plan.json");
  std::string order;
  for (const NamedValue& one : figures.memory) order += one.name + " ";
  EXPECT_EQ(order, "parameters gradients optimizer activations buffers ");
}

TEST(ReadRun, APlanOfSomethingElseIsRefused) {
  EXPECT_THAT(error_of([] { parse_plan_figures("{\"mesh\": 3}", "plan.json"); }), HasSubstr("plan.json: "));
  EXPECT_THAT(error_of([] { parse_plan_figures(R"({"mesh": {"data": -3}})", "plan.json"); }),
              HasSubstr("-3 is not a number from 0 to 1e30"));
  EXPECT_THAT(error_of([] { parse_rank_times(R"([{"rank": 5000000000}])", "ranks.json"); }),
              HasSubstr("5000000000 is not a number from 0 to"));
}

}  // namespace
}  // namespace trivet::report
