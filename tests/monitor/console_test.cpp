#include "report/monitor/console.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace trivet::monitor {
namespace {

StepMetrics metrics_of(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 4.0 - 0.1 * static_cast<double>(step);
  metrics.lr = 5e-4;
  metrics.grad_norm = 1.4071;
  metrics.targets = 5400;
  metrics.step_ms = step == 1 ? 900 : 540;
  metrics.targets_per_second = step == 1 ? 6000 : 10000;
  metrics.memory_bytes = 17 << 20;
  return metrics;
}

std::string run(const ConsoleOptions& options, int64_t skipped_step = 0) {
  std::ostringstream out;
  Console console(out, options);
  console.on_start({.facts = {{"model", "gpt, 809,856 parameters"}}, .total_steps = 5});
  for (int64_t step = 1; step <= 5; ++step) {
    StepMetrics metrics = metrics_of(step);
    if (step == skipped_step) metrics.skipped = true, metrics.loss_scale = 32768, metrics.next_loss_scale = 16384;
    console.on_step(metrics);
  }
  console.on_evaluation({.step = 5, .loss = 2.5, .targets = 111540, .ms = 840});
  console.on_end({.facts = {{"saved", "checkpoints/step-000005"}}});
  return out.str();
}

TEST(Console, PrintsPlainLinesWhenPiped) {
  EXPECT_EQ(
      run({.steps_per_print = 2}),
      "model   gpt, 809,856 parameters\n"
      "\n"
      "    step     loss     grad       lr       tok/s    step ms       mem       left\n"
      "       1   3.9000    1.407  5.0e-04       6,000      900.0    17 MiB           \n"
      "       2   3.8000    1.407  5.0e-04      10,000      540.0    17 MiB       0:02\n"
      "       4   3.6000    1.407  5.0e-04      10,000      540.0    17 MiB       0:01\n"
      "       5   3.5000    1.407  5.0e-04      10,000      540.0    17 MiB       0:00\n"
      "       5   validation loss 2.5000 over 111,540 tokens in 0.8 s\n"
      "done    5 steps in 0:03, loss 3.9000 -> 3.5000, validation 2.5000 (best 2.5000 at step 5), 10,000 tok/s, 0 skipped\n"
      "saved   checkpoints/step-000005\n");
}

TEST(Console, ShowsNoLossWithoutTargets) {
  std::ostringstream out;
  Console console(out, {.steps_per_print = 1});
  console.on_start({.total_steps = 3});
  for (int64_t step = 1; step <= 3; ++step) {
    StepMetrics metrics = metrics_of(step);
    if (step != 2) metrics.without_targets = metrics.skipped = true, metrics.loss = NAN, metrics.targets = 0;
    console.on_step(metrics);
  }
  console.on_evaluation({.step = 3, .loss = NAN, .without_targets = true});
  console.on_end({});
  EXPECT_EQ(out.str(),
            "    step     loss     grad       lr       tok/s    step ms       mem       left\n"
            "       1   skipped: no sample of this step has a target, so there is nothing to learn and no loss\n"
            "       2   3.8000    1.407  5.0e-04      10,000      540.0    17 MiB       0:01\n"
            "       3   skipped: no sample of this step has a target, so there is nothing to learn and no loss\n"
            "       3   no validation loss: no sample that was evaluated has a target\n"
            "done    3 steps in 0:02, loss 3.8000 -> 3.8000, 5,000 tok/s, 2 skipped, 2 of them for lack of targets\n");
}

TEST(Console, ShowsAllTokensBesideThoseThatAreLearned) {
  std::ostringstream out;
  Console console(out, {.steps_per_print = 1});
  console.on_start({.total_steps = 2, .learns_answers = true});
  for (const int64_t step : {1, 2}) {
    StepMetrics metrics = metrics_of(step);
    metrics.tokens_read = 4 * metrics.targets;
    console.on_step(metrics);
  }
  console.on_end({});
  EXPECT_EQ(out.str(),
            "    step     loss     grad       lr       tok/s    step ms       mem       left      read/s\n"
            "       1   3.9000    1.407  5.0e-04       6,000      900.0    17 MiB                 24,000\n"
            "       2   3.8000    1.407  5.0e-04      10,000      540.0    17 MiB       0:00      40,000\n"
            "done    2 steps in 0:01, loss 3.9000 -> 3.8000, 10,000 tok/s learned of 40,000 read, 0 skipped\n");
}

TEST(Console, SaysImagesAndAccuracyIfTheModelChoosesClasses) {
  std::ostringstream out;
  Console console(out, {.steps_per_print = 1});
  console.on_start({.total_steps = 2, .targets = kImages});
  for (const int64_t step : {1, 2}) console.on_step(metrics_of(step));
  console.on_evaluation({.step = 1, .loss = 0.25, .targets = 10000, .correct = 9836, .ms = 4100});
  console.on_evaluation({.step = 1, .loss = 0.25, .targets = 0, .correct = 0, .ms = 4100});
  console.on_end({});
  const std::string text = out.str();
  EXPECT_NE(text.find("       lr       img/s    step ms"), std::string::npos) << text;
  EXPECT_NE(text.find("       1   validation loss 0.2500, accuracy 98.36 % over 10,000 images in 4.1 s\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("       1   validation loss 0.2500 over 0 images in 4.1 s\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" img/s, 0 skipped\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("tok"), std::string::npos) << text;
}

TEST(Console, ShowsRewardsOfPairs) {
  std::ostringstream out;
  Console console(out, {.steps_per_print = 1});
  console.on_start({.total_steps = 1, .targets = kPairs});
  StepMetrics metrics = metrics_of(1);
  metrics.targets = 8;
  metrics.correct = 6;
  metrics.rewards = {0.125, -1.5};
  console.on_step(metrics);
  console.on_evaluation({.step = 1, .loss = 0.25, .targets = 4, .correct = 1, .rewards = {{-0.5, -0.25}}, .ms = 4100});
  EXPECT_EQ(
      out.str(),
      "    step     loss     grad       lr     pairs/s    step ms       mem       left   chosen rejected   margin  acc %\n"
      "       1   3.9000    1.407  5.0e-04       6,000      900.0    17 MiB               0.125   -1.500    1.625   75.0\n"
      "       1   validation loss 0.2500, accuracy 25.00 %, rewards -0.500 / -0.250, margin -0.250 over 4 pairs in 4.1 s\n");
}

TEST(Console, ShowsSkippedStepsWhateverTheInterval) {
  const std::string text = run({.steps_per_print = 100}, 3);
  EXPECT_NE(text.find("       3   skipped: overflow at step 3: the loss scale goes from 32768 to 16384\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find(", 1 skipped\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("       4 "), std::string::npos) << text;
}

TEST(Console, LossesOfSkippedStepsAreNotInTheSummary) {
  const std::string first = run({.steps_per_print = 100}, 1), last = run({.steps_per_print = 100}, 5);
  EXPECT_NE(first.find(", loss 3.8000 -> 3.5000,"), std::string::npos) << first;
  EXPECT_NE(last.find(", loss 3.9000 -> 3.6000,"), std::string::npos) << last;
}

TEST(Console, TheBestEvaluationNeedNotBeTheLast) {
  std::ostringstream out;
  Console console(out, {});
  for (const auto& [step, loss] : {std::pair{1, 2.5}, {2, 2.0}, {3, 2.0}, {4, 2.25}}) {
    console.on_step(metrics_of(step));
    console.on_evaluation({.step = step, .loss = loss, .targets = 10});
  }
  console.on_end({});
  EXPECT_NE(out.str().find(", validation 2.2500 (best 2.0000 at step 2),"), std::string::npos) << out.str();
}

// Only an overflow of gradients is called one. A loss that is not finite says something about the weights.
TEST(Console, SaysWhyAStepWasSkipped) {
  std::ostringstream out;
  Console console(out, {});
  console.on_step({.step = 1, .loss = 2, .skipped = true});
  console.on_step({.step = 2, .loss = -std::nan(""), .skipped = true});
  console.on_step({.step = 3, .loss = 2, .loss_scale = 64, .next_loss_scale = 64, .skipped = true});
  console.on_step({.step = 4, .loss = std::nan(""), .loss_scale = 64, .next_loss_scale = 32, .skipped = true});
  EXPECT_EQ(out.str(),
            "       1   skipped: the gradients overflowed\n       2   skipped: the loss is nan\n"
            "       3   skipped: overflow at step 3: the loss scale stays 64\n       4   skipped: the loss is nan\n");
}

TEST(Console, DrawsALiveLineOnATerminal) {
  const std::string text = run({.terminal = true, .steps_per_print = 100, .redraw_seconds = 0});
  EXPECT_NE(text.find("\r\x1b[K       2   3.8000"), std::string::npos) << text;
  EXPECT_NE(text.find("\r\x1b[K       3   3.7000"), std::string::npos) << text;
  EXPECT_NE(text.find("\r\x1b[K       5   3.5000    1.407  5.0e-04      10,000      540.0    17 MiB       0:00\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("\x1b[1m"), std::string::npos) << "no color was requested";
}

TEST(Console, CutsTheLiveLineToTheTerminal) {
  const std::string text = run({.terminal = true, .steps_per_print = 100, .columns = 20, .redraw_seconds = 0});
  EXPECT_NE(text.find("\x1b[K       2   3.8000  \r"), std::string::npos) << text;
}

TEST(Console, RedrawsNoMoreOftenThanAsked) {
  const std::string text = run({.terminal = true, .steps_per_print = 100, .redraw_seconds = 1000});
  EXPECT_NE(text.find("3.8000"), std::string::npos) << text;
  EXPECT_EQ(text.find("3.7000"), std::string::npos) << text;
}

TEST(Console, ColorsAreOnlyStyle) {
  std::string text = run({.color = true, .steps_per_print = 2}, 3);
  EXPECT_NE(text.find("\x1b[33m       3   skipped"), std::string::npos) << text;
  for (const std::string code : {"\x1b[1m", "\x1b[33m", "\x1b[0m"})
    for (size_t at; (at = text.find(code)) != std::string::npos;) text.erase(at, code.size());
  EXPECT_EQ(text, run({.steps_per_print = 2}, 3));
}

TEST(Console, SaysThatARunIsResumed) {
  std::ostringstream out;
  Console console(out, {});
  console.on_start({.steps_done = 1200, .total_steps = 5000});
  EXPECT_EQ(out.str().rfind("resumed after step 1,200\n", 0), 0u) << out.str();
}

TEST(Console, ControlCharactersOfFactsDoNotReachTheTerminal) {
  std::ostringstream out;
  Console console(out, {});
  console.on_start({.facts = {{"data", "a\x1b[31mb.txt: 5 tokens"}}, .total_steps = 5});
  EXPECT_EQ(out.str().rfind("data    a\\x1b[31mb.txt: 5 tokens\n", 0), 0u) << out.str();
}

TEST(Console, NoColorIsRespected) {
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(options_for_stdout(10).color);
  ::unsetenv("NO_COLOR");
}

TEST(Monitors, TellEachInOrder) {
  std::ostringstream out;
  Monitors monitors;
  monitors.add(std::make_unique<Console>(out, ConsoleOptions{}));
  monitors.add(std::make_unique<Console>(out, ConsoleOptions{}));
  monitors.on_evaluation({.step = 1, .loss = 1.5, .targets = 10});
  EXPECT_EQ(out.str(),
            "       1   validation loss 1.5000 over 10 tokens in 0.0 s\n"
            "       1   validation loss 1.5000 over 10 tokens in 0.0 s\n");
}

}  // namespace
}  // namespace trivet::monitor
