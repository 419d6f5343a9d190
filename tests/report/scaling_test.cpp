// Speedup and efficiency of runs on different numbers of ranks.
#include "report/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "report/run_page.h"
#include "report/timed_steps.h"
#include "tests/report/run_examples.h"

namespace trivet::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Its first step is slow, and is not counted.
RunData run_on(int64_t ranks, int64_t batch, double step_ms) {
  RunData run;
  run.name = "runs/" + std::to_string(ranks);
  run.plan.ranks = ranks;
  run.plan.samples_per_step = batch;
  for (int64_t step = 1; step <= 4; ++step) {
    StepPoint point = point_of(step, 3);
    point.step_ms = step == 1 ? 99 * step_ms : step_ms;
    run.steps.add(point);
  }
  return run;
}

std::string refusal_of(const std::vector<RunData>& runs) {
  try {
    scaling_of(runs);
    return "accepted";
  } catch (const DataError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
    return error.what();
  }
}

TEST(Scaling, ComparesWithTheRunOnTheFewestRanks) {
  const std::vector runs{run_on(8, 64, 25), run_on(2, 64, 80), run_on(4, 64, 40)};
  const auto rows = scaling_of(runs);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].run, "runs/2");
  EXPECT_EQ(rows[0].samples_per_second, 800);
  EXPECT_EQ(rows[0].efficiency, 1);
  EXPECT_EQ(rows[1].speedup, 2);
  EXPECT_EQ(rows[1].ideal, 2);
  EXPECT_EQ(rows[2].speedup, 3.2);
  EXPECT_EQ(rows[2].ideal, 4);
  EXPECT_EQ(rows[2].efficiency, 0.8);
  EXPECT_THAT(to_text(rows), HasSubstr("       64        2,560     3.20    4.00      80.0 %"));
}

TEST(Scaling, WithABatchThatGrowsTheSameTimeIsIdeal) {
  const std::vector runs{run_on(1, 8, 50), run_on(4, 32, 50)};
  const auto rows = scaling_of(runs);
  EXPECT_EQ(rows[1].speedup, 4);
  EXPECT_EQ(rows[1].efficiency, 1);
}

TEST(Scaling, SaysOfWhichKindItIs) {
  const auto kind = [](const std::vector<RunData>& runs) { return kind_of(scaling_of(runs)); };
  EXPECT_EQ(kind({run_on(1, 8, 50), run_on(4, 8, 50)}), ScalingKind::Strong);
  EXPECT_EQ(kind({run_on(2, 8, 50), run_on(4, 16, 50), run_on(6, 24, 9)}), ScalingKind::Weak);
  EXPECT_EQ(kind({run_on(2, 8, 50), run_on(4, 16, 50), run_on(6, 16, 9)}), ScalingKind::Mixed);
  constexpr int64_t kMost = int64_t{1} << 50;  // that a folder may say; times 2^16 it is 0 in 64 bits
  EXPECT_EQ(kind({run_on(int64_t{1} << 16, kMost, 50), run_on(int64_t{1} << 17, kMost / 2, 50)}), ScalingKind::Mixed);
}

TEST(Scaling, PrintsATable) {
  const std::vector runs{run_on(1, 8, 50), run_on(4, 8, 20)};
  EXPECT_EQ(to_text(scaling_of(runs)),
            " ranks    batch    samples/s  speedup   ideal  efficiency       tok/s    step ms  run\n"
            "     1        8        160.0     1.00    1.00     100.0 %       1,000       50.0  runs/1\n"
            "     4        8        400.0     2.50    4.00      62.5 %       1,000       20.0  runs/4\n"
            "All runs have the same batch (strong scaling).\n");
  EXPECT_THAT(to_json(scaling_of(runs)), HasSubstr("\"speedup\": 2.5"));
}

TEST(Scaling, OfRunsOnImagesCountsImages) {
  std::vector runs{run_on(1, 8, 50), run_on(4, 8, 20)};
  runs[1].targets = monitor::kImages;
  EXPECT_THAT(to_text(scaling_of(runs)), HasSubstr(" targets/s "));  // one of each kind
  runs[0].targets = monitor::kImages;
  EXPECT_THAT(to_text(scaling_of(runs)), StartsWith(" ranks    batch    samples/s  speedup   ideal  efficiency       img/s "));
  EXPECT_THAT(to_json(scaling_of(runs)), HasSubstr("\"images_per_second\": 1000.0"));
  EXPECT_EQ(to_scaling_page(runs).find("tok"), std::string::npos);
}

TEST(Scaling, APageBeginsWithTheSection) {
  const std::vector runs{run_on(1, 8, 50), run_on(4, 8, 20)};
  const std::string page = to_scaling_page(runs);
  EXPECT_THAT(page, HasSubstr("<title>Scaling of 2 runs</title>"));
  EXPECT_LT(page.find("<h2>Scaling</h2>"), page.find("<h1>2 runs</h1>"));
  EXPECT_THAT(page, HasSubstr("<td>62.5 %</td>"));
  // What is written behind a bar was reached.
  EXPECT_THAT(page, HasSubstr(">400 samples/s</text>"));
  EXPECT_THAT(page, Not(HasSubstr(">640 samples/s</text>")));
  EXPECT_THAT(page, HasSubstr("<title>in proportion to the ranks: 640 samples/s</title>"));
}

// A run with a plan for 4 ranks, in which each step took `ms_of` it.
template <typename MsOf>
RunData restarted(const std::vector<KnownStart>& starts, int64_t steps, const MsOf& ms_of) {
  RunData run = run_on(4, 64, 40);
  run.steps = decltype(run.steps)();
  for (int64_t step = 1; step <= steps; ++step) {
    StepPoint point = point_of(step, 3);
    point.step_ms = ms_of(step);
    run.steps.add(point);
  }
  run.known_starts = starts;
  return run;
}

std::vector<int64_t> numbers(const std::vector<StepPoint>& points) {
  std::vector<int64_t> steps;
  for (const StepPoint& point : points) steps.push_back(point.step);
  return steps;
}

TEST(TimedSteps, AreThoseOfStartsOnTheLastNumberOfRanksWithoutTheFirstOfEach) {
  const auto of = [](const std::vector<KnownStart>& starts) {
    return timed_steps(restarted(starts, 9, [](int64_t) { return 40; }));
  };
  const TimedSteps once = of({{0, 4}});
  EXPECT_EQ(numbers(once.steps), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(once.note, "");
  EXPECT_EQ(numbers(of({}).steps), numbers(once.steps));
  const TimedSteps thrice = of({{0, 4}, {4, 2}, {6, 4}});
  EXPECT_EQ(numbers(thrice.steps), (std::vector<int64_t>{2, 3, 4, 8, 9}));
  EXPECT_EQ(thrice.note,
            "started 3 times: timed are the steps 2 to 4, 8 to 9, without the first of each start, and not the steps 5 to 6 "
            "(2 ranks)");
  // The second start was killed before it could save, so the third repeats its steps.
  EXPECT_EQ(numbers(of({{0, 4}, {5, 2}, {5, 4}}).steps), (std::vector<int64_t>{2, 3, 4, 5, 7, 8, 9}));
  EXPECT_EQ(numbers(of({{0, 4}, {6, 4}, {3, 4}}).steps), (std::vector<int64_t>{2, 3, 5, 6, 7, 8, 9}));
  // A folder of an earlier version does not say on how many ranks.
  EXPECT_EQ(numbers(of({{0, 0}, {4, 0}}).steps), (std::vector<int64_t>{2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(of({{0, 2}, {8, 4}}).note,
            "started 2 times: no steps are timed, without the first of each start, and not the steps 1 to 8 (2 ranks)");
}

TEST(Scaling, OfARestartedRunCountsTheStepsOnThePlansRanksAndSaysSo) {
  const auto ms_of = [](int64_t step) { return step == 1 || step == 7 ? 900.0 : step <= 6 ? 80.0 : 25.0; };
  const std::vector runs{run_on(1, 64, 100), restarted({{0, 2}, {6, 4}}, 9, ms_of)};
  const auto rows = scaling_of(runs);
  EXPECT_EQ(rows[1].step_ms, 25);
  EXPECT_EQ(rows[1].speedup, 4);
  const std::string note =
      "runs/4: started 2 times: timed are the steps 8 to 9, without the first of each start, and not the steps 1 to 6 (2 "
      "ranks).";
  EXPECT_THAT(to_text(rows), testing::EndsWith("(strong scaling).\n" + note + "\n"));
  EXPECT_THAT(to_scaling_page(runs), HasSubstr("<p>" + note + "</p>"));
  EXPECT_THAT(to_json(rows), HasSubstr("\"note\": \"started 2 times: "));
  EXPECT_THAT(refusal_of({run_on(1, 64, 100), restarted({{0, 2}, {8, 4}}, 9, ms_of)}),
              testing::EndsWith("and not the steps 1 to 8 (2 ranks); no step is left whose time counts"));
}

TEST(Scaling, RefusesWhatCannotBeCompared) {
  EXPECT_THAT(refusal_of({run_on(1, 8, 50)}), StartsWith("scaling: one run is not enough; "));
  EXPECT_THAT(refusal_of({}), StartsWith("scaling: one run is not enough; "));
  RunData metrics_alone = run_on(1, 8, 50);
  metrics_alone.plan = {};
  EXPECT_THAT(refusal_of({run_on(2, 8, 50), metrics_alone}), StartsWith("runs/1: there is no plan"));
  RunData one_step = run_on(1, 8, 50);
  one_step.steps = decltype(one_step.steps)();
  one_step.steps.add(point_of(1, 3));
  EXPECT_THAT(refusal_of({run_on(2, 8, 50), one_step}), StartsWith("runs/1: has fewer than two steps"));
  EXPECT_EQ(refusal_of({run_on(2, 8, 50), run_on(2, 8, 40)}), "accepted");
}

}  // namespace
}  // namespace trivet::report
