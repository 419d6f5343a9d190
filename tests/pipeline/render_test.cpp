#include "pipeline/render.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/colours.h"
#include "core/error.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/simulate.h"

namespace trivet::pipeline {
namespace {

using testing::HasSubstr;
using testing::Not;

Timeline two_by_two(const ComputeCosts& costs = {}) {
  const Schedule schedule = one_forward_one_backward(2, 2);
  return simulate(schedule, {.cost = even_costs(schedule, costs), .sends = BackwardSends::AfterWeights});
}

TEST(Render, TextIsAGridOfRanksAndTime) {
  EXPECT_EQ(to_text(two_by_two(), {"1f1b", 2, 2}),
            "1f1b: P 2, M 2, makespan 9, bubble 33.3 %\n"
            "rank 0   F0 F1       I0 W0    I1 W1\n"
            "rank 1      F0 I0 W0 F1 I1 W1\n"
            "peak microbatches of a stage, from F to W: 2 1\n");
  EXPECT_THAT(to_text(two_by_two({.forward = 1, .backward_input = 2, .backward_weight = 1}), {"1f1b", 2, 2}),
              HasSubstr("rank 1      F0 I0    W0 F1 I1    W1\n"));
}

TEST(Render, TextNamesStagesWhereRanksHaveSeveral) {
  const Schedule schedule = zero_bubble_v(1, 1);
  const Timeline timeline = simulate(schedule, {.cost = even_costs(schedule, {})});
  EXPECT_THAT(to_text(timeline, {"zb-v", 1, 1, 2}), HasSubstr("rank 0   0F0 1F0 1I0 1W0 0I0 0W0\n"));
  EXPECT_THAT(to_text(timeline, {"zb-v", 1, 1, 2}), HasSubstr("zb-v: P 1, M 1, V 2, makespan 3, bubble 0.0 %\n"));
}

// A column is wide enough for the label of the shortest instruction: three characters for each 0.5 of 10 million.
TEST(Render, ADrawingHasALimit) {
  Timeline timeline = two_by_two({.forward = 0.5});
  timeline.makespan = 1e7;
  try {
    to_text(timeline, {"x.txt", 2, 2});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.txt: the drawing would have 120 million characters, but the limit is 67 million"));
  }
  timeline.makespan = 5e6;
  EXPECT_NO_THROW(to_text(timeline, {"x.txt", 2, 2}));
}

TEST(Render, SvgHasABoxForEachComputation) {
  const std::string svg = to_svg(two_by_two(), {"<1f1b>", 2, 2});
  EXPECT_THAT(svg, HasSubstr(">&lt;1f1b&gt;: P 2, M 2, makespan 9, bubble 33.3 %</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>1W1 from 6 to 7</title>"));
  EXPECT_THAT(svg, HasSubstr("W backward_weight"));
  EXPECT_THAT(svg, Not(HasSubstr("L loss")));
  EXPECT_THAT(svg,
              HasSubstr(fmt::format("<rect class=\"bubble\" x=\"64.0\" y=\"44.0\" width=\"900.0\" height=\"24\" fill=\"{}\"/>",
                                    colour_of("bubble"))));
  EXPECT_THAT(svg, HasSubstr(">bubble</text>"));
}

TEST(Render, ChromeTraceHasAThreadForEachLink) {
  const Schedule schedule = gpipe(2, 1);
  const std::string trace = to_chrome_trace(simulate(schedule, {.cost = [](int, const Instruction&) { return 1.0; }}));
  EXPECT_THAT(trace, HasSubstr(R"({"ph":"X","name":"0SEND_F0","pid":0,"tid":14,"ts":1000,"dur":1000})"));
  EXPECT_THAT(trace, HasSubstr(R"("args":{"name":"gradients to rank 0"})"));
}

TEST(Render, PanelsShareOneScale) {
  const Timeline fast = two_by_two(), slow = two_by_two({.forward = 2, .backward_input = 2, .backward_weight = 2});
  const Caption measured{"measured 1f1b", 2, 2, 1, "ms"}, simulated{"simulated 1f1b", 2, 2, 1, "ms"};
  const Panel panels[] = {{slow, measured}, {fast, simulated}};
  const std::string svg = to_svg(panels);
  EXPECT_THAT(svg, HasSubstr("measured 1f1b: P 2, M 2, makespan 18 ms, bubble 33.3 %"));
  EXPECT_THAT(svg, HasSubstr("simulated 1f1b: P 2, M 2, makespan 9 ms, bubble 33.3 %"));
  // 18 ms are 900 wide; the boxes are F0 of rank 0 in each panel.
  EXPECT_THAT(svg, HasSubstr("<rect x=\"64.0\" y=\"44.0\" width=\"100.0\" height=\"24\" fill=\"#4a86d6\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"64.0\" y=\"178.0\" width=\"50.0\" height=\"24\" fill=\"#4a86d6\""));
  EXPECT_THAT(svg, HasSubstr(">ms</text>"));
  const Timeline long_one = two_by_two({.forward = 1332, .backward_input = 1332, .backward_weight = 1332});
  EXPECT_THAT(to_svg(long_one, measured), HasSubstr("measured 1f1b: P 2, M 2, makespan 12.0 s, bubble"));
}

// Simulated schedules have no costs of communication, so that only steps of runs say what the gaps are.
TEST(Render, SvgOfAStepNamesWhatIsWaitedFor) {
  Timeline step;
  step.ranks = {{{.instruction = {Op::Backward, 0, 0}, .start = 0.5, .end = 1},
                 {.instruction = {Op::Reduce, 0, -1, 2}, .queue = Queue::Reduce, .start = 1, .end = 3},
                 {.instruction = {Op::SendForward, 0, 0}, .queue = Queue::Send, .peer = 1, .start = 4, .end = 4.25}}};
  step.waits = {{{Queue::Reduce, 1, 3}, {Queue::Meet, 3, 4}, {Queue::Send, 5, 6}, {queue_of(Axis::Context), 6, 7}}};
  step.makespan = 8;
  step.bubble_fraction = 0.75;
  step.peak_microbatches = {1};
  const Caption caption{.schedule = "measured", .unit = "ms", .is_step = true};
  const std::string svg = to_svg(step, caption);
  for (const char* part :
       {"measured: 8 ms, 1 microbatch, 75.0 % without computation", "<title>optimizer step from 0 to 0.5</title>",
        "<title>starts communication from 4 to 5</title>", "<title>waits for a neighbour (bubble) from 5 to 6</title>",
        "<title>waits for the context axis from 6 to 7</title>", ">no cause recorded</text>",
        "<title>waits for the data axis from 1 to 3</title>", "<title>waits for loss, norm or ties from 3 to 4</title>",
        "height=\"5\" fill=\"#8a7f6d\"", ">communication</text>", "prefers-color-scheme: dark"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, Not(HasSubstr("from 7 to 8"))) << "nothing was recorded then";
  EXPECT_THAT(to_svg(step, {"1f1b", 1, 1}), Not(testing::ContainsRegex("waits|communication")));
}

TEST(Render, ChromeTraceNamesWhatARankWaitsFor) {
  const std::string trace = to_chrome_trace(two_by_two());
  EXPECT_THAT(trace, HasSubstr(R"({"ph":"X","name":"for a transfer","pid":1,"tid":11,"ts":0,"dur":1000})"));
}

}  // namespace
}  // namespace trivet::pipeline
