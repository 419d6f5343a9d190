#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "core/colours.h"
#include "report/common_steps.h"
#include "report/line_chart.h"
#include "report/run_charts.h"
#include "report/run_page.h"
#include "tests/report/run_examples.h"

namespace trivet::report {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// What stands between `before` and the next `after`, in each place.
std::vector<std::string> all_between(const std::string& text, const std::string& before, const std::string& after) {
  std::vector<std::string> found;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
    at += before.size();
    found.push_back(text.substr(at, text.find(after, at) - at));
  }
  return found;
}

LineChart chart_of(std::vector<std::pair<double, double>> points, bool logarithmic = false) {
  return {
      .title = "Loss", .lines = {{.name = "training", .points = std::move(points)}}, .marks = {}, .logarithmic = logarithmic};
}

TEST(LineChart, SaysInWordsWhatItDraws) {
  const LineChart chart = chart_of({{1, 4.5}, {2, 3}, {3, NAN}, {4, 3.5}});
  EXPECT_EQ(in_words(chart), "training: 4.5 at step 1, 3.5 at step 4; from 3 to 4.5");
  EXPECT_THAT(to_svg(chart), HasSubstr("role=\"img\" aria-label=\"Loss. training: 4.5 at step 1"));
}

TEST(LineChart, HasOnePointForEachFiniteValue) {
  const std::string svg = to_svg(chart_of({{0, 0}, {5, NAN}, {10, 4}}));
  EXPECT_THAT(all_between(svg, "<polyline class=\"l0\" points=\"", "\""),
              ElementsAre("56.0,196.0 458.0,10.0 "));  // the corners of the area between the axes
}

TEST(LineChart, DrawsMeanAndRangeWhereThereAreMorePointsThanPixels) {
  LineChart chart = chart_of({});
  for (int step = 0; step < 10000; ++step) chart.lines[0].points.emplace_back(step, step % 2);
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count_of(svg, "<polygon class=\"band b0\""), 1);
  EXPECT_LT(svg.size(), 30000u);
}

TEST(LineChart, OneValueAndEqualValuesAndExtremeValuesAreDrawn) {
  for (const double value : {0.0, -2.0, 1e-300, 1e300}) {
    for (const LineChart& chart :
         {chart_of({{7, value}}), chart_of({{7, value}, {8, value}}), chart_of({{0, -value}, {1, value}})})
      for (const char* wrong : {"nan", "inf"}) EXPECT_THAT(to_svg(chart), Not(HasSubstr(wrong))) << value;
    EXPECT_EQ(count_of(to_svg(chart_of({{7, value}})), "<circle"), 1);
  }
  EXPECT_EQ(to_svg(chart_of({{1, NAN}, {2, std::numeric_limits<double>::max()}})), "");  // neither can be drawn
}

// The largest steps that are read. Adding 1 to larger ones would change nothing.
TEST(LineChart, TheLargestStepsAreDrawn) {
  constexpr int64_t kLargest = int64_t{1} << 50;
  for (const LineChart& chart : {chart_of({{kLargest, 1}}), chart_of({{kLargest - 2, 1}, {kLargest, 2}})}) {
    const std::string svg = to_svg(chart);
    EXPECT_LT(svg.size(), 10000u);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
  }
}

// The texts at the axis of values, from the bottom up.
std::vector<std::string> texts_at_axis(double low, double high, bool logarithmic = false) {
  std::vector<std::string> texts =
      all_between(to_svg(chart_of({{1, low}, {2, high}}, logarithmic)), "text-anchor=\"end\">", "</text>");
  texts.pop_back();  // "step", below the other axis
  return texts;
}

TEST(LineChart, TheAxisOfValuesBeginsAndEndsAtRoundNumbersOfTheSamePrecision) {
  EXPECT_THAT(texts_at_axis(2.16, 4.15), ElementsAre("2.0", "2.5", "3.0", "3.5", "4.0", "4.5"));
  EXPECT_THAT(texts_at_axis(0.00003, 0.002), ElementsAre("0.0000", "0.0005", "0.0010", "0.0015", "0.0020"));
  EXPECT_THAT(texts_at_axis(-100, 3900), ElementsAre("-1,000", "0", "1,000", "2,000", "3,000", "4,000"));
  EXPECT_THAT(texts_at_axis(0, 1'200'000), ElementsAre("0.0M", "0.5M", "1.0M", "1.5M"));
  EXPECT_THAT(texts_at_axis(1e-9, 3e-9), ElementsAre("1e-09", "1.5e-09", "2e-09", "2.5e-09", "3e-09"));
}

TEST(LineChart, ALogarithmicAxisHasRoundNumbersAndEqualFactorsAtEqualDistances) {
  EXPECT_THAT(texts_at_axis(0.98, 3.1, true), ElementsAre("0.8", "1", "2", "3", "4"));
  EXPECT_THAT(texts_at_axis(0.6, 30, true), ElementsAre("0.5", "1", "2", "5", "10", "20", "50"));
  EXPECT_THAT(texts_at_axis(2.16, 4.15, true), ElementsAre("2.0", "2.5", "3.0", "3.5", "4.0", "4.5"));
  EXPECT_THAT(texts_at_axis(0.002, 2'000'000, true), ElementsAre("0.001", "0.1", "10", "1,000", "100,000", "10M"));
  EXPECT_THAT(texts_at_axis(4, 4, true).size(), testing::Ge(2));
  EXPECT_THAT(all_between(to_svg(chart_of({{0, 1}, {5, 10}, {10, 100}}, true)), "<polyline class=\"l0\" points=\"", "\""),
              ElementsAre("56.0,196.0 257.0,103.0 458.0,10.0 "));
}

// As when only a few steps of a long run are drawn.
TEST(LineChart, LargeStepsCloseToEachOtherAreToldApart) {
  const std::string svg = to_svg(chart_of({{5'000'000, 1}, {5'000'004, 2}}));
  EXPECT_THAT(all_between(svg, "text-anchor=\"middle\">", "</text>"),
              ElementsAre("5,000,000", "5,000,001", "5,000,002", "5,000,003", "5,000,004"));
}

TEST(LineChart, ALineThatEndsBeforeOthersSaysSoAndHasNoFiguresAfterItsEnd) {
  LineChart chart = chart_of({{1, 3}, {2, 2}, {4, 1}});
  chart.lines.push_back({.name = "short", .points = {{1, 4}, {2, 3}}, .color = 1});
  const std::string shown = figure(chart, "id");
  EXPECT_THAT(shown, HasSubstr("</svg>training</span>"));
  EXPECT_THAT(shown, HasSubstr("</svg>short (to step 2)</span>"));
  EXPECT_THAT(shown, HasSubstr("<title>short: 3 at step 2</title>"));
  EXPECT_THAT(figures_of(chart), Contains(ElementsAre("4", "1", "")));
}

TEST(LineChart, FiguresAreSpreadOverTheSteps) {
  LineChart chart = chart_of({});
  for (int step = 1; step <= 101; ++step) chart.lines[0].points.emplace_back(step, step * 2);
  chart.lines.push_back({.name = "validation", .points = {{51, 7}}, .style = LineStyle::Dashed});
  EXPECT_THAT(figures_of(chart, 3), ElementsAre(ElementsAre("step", "training", "validation"), ElementsAre("1", "2", ""),
                                                ElementsAre("51", "102", "7"), ElementsAre("101", "202", "7")));
}

TEST(RunCharts, UtilizationIsTheModelsFlopsOutOfWhatTheDevicesCanDo) {
  const RunData run = small_run();
  EXPECT_DOUBLE_EQ(utilization_percent(run.plan, 100), 25);  // 2 GFLOP in 0.1 s on 2 x 40 GFLOP/s
  EXPECT_EQ(median_step_ms(run), 100);
  EXPECT_EQ(utilization_percent({}, 100), 0);
}

TEST(RunCharts, TheSlowFirstStepDoesNotCountInMedians) {
  RunData run;
  for (const double ms : {9000.0, 10.0, 30.0, 20.0}) {
    StepPoint point = point_of(1, 1);
    point.step_ms = ms;
    run.steps.add(point);
  }
  EXPECT_EQ(median_step_ms(run), 20);
}

// A run of these losses, from step 1 on.
RunData run_of(const std::string& name, const std::vector<double>& losses, double tokens_per_second = 1000) {
  RunData run;
  run.name = name;
  for (const double loss : losses) {
    StepPoint point = point_of(run.steps.count() + 1, loss);
    point.targets_per_second = tokens_per_second;
    run.steps.add(point);
  }
  return run;
}

using Points = std::vector<std::pair<double, double>>;

TEST(RunCharts, SmoothedLinesAreMeansOfTheLastStepsOverPaleLinesOfEachStep) {
  const RunData run = run_of("run", {4, 2, NAN, 6, 8});
  const LineChart chart = charts_of({&run, 1}, {.mean_of = 3, .steps = {3, 5}})[0];
  ASSERT_EQ(chart.lines.size(), 2u);
  EXPECT_EQ(chart.lines[0].style, LineStyle::Pale);
  EXPECT_EQ(chart.lines[0].points.back(), std::pair(5.0, 8.0));
  EXPECT_EQ(Points(chart.lines[1].points.begin() + 1, chart.lines[1].points.end()), (Points{{4, 4}, {5, 7}}));
  EXPECT_EQ(in_words(chart),
            "training: 4 at step 4, 7 at step 5; from 4 to 7. training: mean of the last 3 steps; pale: each step");
  EXPECT_THAT(figure(chart, "id"), HasSubstr("<span>training: mean of the last 3 steps; pale: each step</span>"));
}

TEST(RunCharts, OnlyTheStepsOfTheRangeAreDrawn) {
  const RunData run = small_run();  // steps 1 to 3, an evaluation and a checkpoint at step 2
  const LineChart inside = charts_of({&run, 1}, {.steps = {2, 3}})[0], after = charts_of({&run, 1}, {.steps = {3, 3}})[0];
  EXPECT_EQ(inside.lines[0].points, (Points{{2, 3}, {3, 2}}));
  EXPECT_EQ(inside.lines.size() + inside.marks.size(), 3u);
  EXPECT_EQ(after.lines.size() + after.marks.size(), 1u);
}

TEST(RunCharts, ALossWithoutALogarithmIsNamed) {
  const RunData run = run_of("run", {4, 0, 2});
  EXPECT_EQ(
      error_of([&] {
        charts_of({&run, 1}, {.logarithmic_loss = true});
      }),
      "--log: run: the loss of step 2 is 0, which a logarithmic axis cannot show; leave out --log, or this step with --steps");
  EXPECT_EQ(charts_of({&run, 1}, {.steps = {3, 3}, .logarithmic_loss = true})[0].title, "Loss, logarithmic");
}

TEST(RunCharts, ARangeOfStepsMayBeOpenAndHasStepsOfTheRuns) {
  const RunData runs[] = {run_of("a", {4, 3, 2}), run_of("b", std::vector<double>(1200, 1))};
  const auto parsed = [&](const std::string& text) {
    const StepRange range = parse_step_range(text, runs);
    return std::pair(range.first, range.last);
  };
  EXPECT_EQ(parsed("2:7"), std::pair(int64_t{2}, int64_t{7}));
  EXPECT_EQ(parsed(":7"), std::pair(int64_t{0}, int64_t{7}));
  EXPECT_EQ(parsed("1200:"), std::pair(int64_t{1200}, INT64_MAX));
  for (const char* wrong : {"", ":", "7", "7:2", "a:b", "1:2:3", "-1:2", "1.5:2", " 1:2", "99999999999999999999:"})
    EXPECT_EQ(
        error_of([&] { parsed(wrong); }),
        fmt::format("--steps: \"{}\" is not accepted; use FROM:TO, FROM: or :TO, with whole numbers and FROM not larger than "
                    "TO; the runs have the steps 1 to 1,200",
                    wrong));
  EXPECT_EQ(error_of([&] { parsed("1201:"); }), "--steps: \"1201:\" has no step of a run; the runs have the steps 1 to 1,200");
}

TEST(CommonSteps, CompareRunsAtTheLastStepAndEvaluationOfAllAndNameTheBest) {
  RunData runs[] = {run_of("long", {5, 4, 3, 2}), run_of("short", {5, 3.5, 3.25}, 2000), run_of("new", {})};
  for (const int64_t step : {1, 2, 4}) add(runs[0], EvaluationPoint{.step = step, .loss = 7.0 - double(step)});
  for (const int64_t step : {1, 2, 3}) add(runs[1], EvaluationPoint{.step = step, .loss = 6.5 - double(step)});
  const auto row = [](const std::string& name, const std::string& rest) {
    return "<tr><td>" + name + "</td>" + rest + "</tr>";
  };
  const std::string all = common_steps_section(runs, {});
  EXPECT_THAT(all, HasSubstr("At step 3, the last that all runs with steps have"));
  EXPECT_THAT(all, HasSubstr("Validation losses are those of step 2, "));
  EXPECT_THAT(all, HasSubstr(row("long", "<td>3.0000 (best)</td><td>5.0000</td><td>1,000</td><td>1</td>")));
  EXPECT_THAT(all, HasSubstr(row("short", "<td>3.2500</td><td>4.5000 (best)</td><td>2,000 (best)</td><td>none</td>")));
  EXPECT_THAT(all, HasSubstr(row("new", "<td>none</td><td>none</td><td>none</td><td>has no steps</td>")));
  const std::string two = common_steps_section(runs, {.mean_of = 2, .steps = {2, 2}});
  EXPECT_THAT(two, HasSubstr("<th>loss, mean of 2 steps</th>"));
  EXPECT_THAT(two, HasSubstr("tok/s is the median from step 2 up to step 2."));
  EXPECT_THAT(two, HasSubstr(row("short", "<td>4.2500 (best)</td><td>4.5000 (best)</td><td>2,000 (best)</td><td>1</td>")));
  EXPECT_EQ(common_steps_section({runs + 1, 2}, {}), "") << "one run alone has steps";
}

// The style sheet has seven colours. Parts beyond them begin again, and the legend continues below its first row.
TEST(PageDrawing, ManyPartsOfABarHaveColoursAndNamesInsideTheDrawing) {
  Bar bar{"all", {}};
  for (int i = 0; i < 20; ++i) bar.parts.push_back({fmt::format("part number {}", i), 1});
  const std::string svg = stacked_bars({bar}, {.unit_name = "MiB"});
  EXPECT_EQ(count_of(svg, "class=\"c6\""), 2 * 2);  // in the bar and in the legend: parts 6 and 13
  EXPECT_EQ(count_of(svg, "class=\"c7\""), 0);
  for (const std::string& x : all_between(svg, "<text x=\"", "\"")) EXPECT_LE(std::stod(x), 856);  // that of the bar's sum
}

TEST(PageDrawing, ACategoryHasItsColourInEveryPlace) {
  const std::string svg = stacked_bars({{"step", {{"compute", 1}, {"data", 1}, {"bubble", 1}}}}, {.unit_name = "s"});
  for (const char* category : {"data", "bubble"})
    EXPECT_EQ(count_of(svg, fmt::format("fill=\"{}\"", colour_of(category))), 2)
        << category << ", in the bar and in the legend";
}

// Categories that one picture shows next to each other.
TEST(Colours, CategoriesAreToldApart) {
  for (const std::vector<std::string>& together : std::vector<std::vector<std::string>>{
           {"parameters", "gradients", "optimizer", "activations", "buffers", "bubble"},
           {"compute", "recompute", "tensor", "data", "bubble", "optimizer", "offload", "waits"},
           {"forward", "backward_input", "backward_weight", "backward", "loss", "recompute", "bubble", "data", "tensor",
            "context", "expert", "meet", "offload", "optimizer", "communication", "start", "unknown"}}) {
    std::set<std::string_view> colours;
    for (const std::string& category : together) colours.insert(colour_of(category));
    EXPECT_EQ(colours.size(), together.size()) << together.front();
    EXPECT_FALSE(colours.contains("")) << together.front();
  }
}

TEST(Colours, ThePictureOfZeroHasThoseOfThePages) {
  std::ifstream file(TRIVET_SOURCE_DIR "/scripts/draw_zero");
  const std::string script(std::istreambuf_iterator<char>(file), {});
  for (const char* category : {"parameters", "gradients", "optimizer", "activations", "buffers"})
    EXPECT_THAT(script, HasSubstr(fmt::format("\"{}\": \"{}\"", category, colour_of(category))));
}

TEST(PageDrawing, LongLabelsAndSumsAreNotClipped) {
  const std::string label(60, 'W');
  const std::string svg = stacked_bars({{label, {{"all", 1234567}}}}, {.unit_name = "samples/s"});
  EXPECT_THAT(svg, HasSubstr(">1,234,567 samples/s</text>"));
  const double width = std::stod(all_between(svg, "width=\"", "\"").front());
  const std::vector<std::string> x = all_between(svg, "<text x=\"", "\"");
  EXPECT_GE(std::stod(x[0]), 7 * 60) << "the end of the label";
  EXPECT_GE(width - std::stod(x[1]), 7 * 19) << "the beginning of the sum";
}

TEST(PageDrawing, ASumAboveTheLimitIsMarked) {
  const auto svg = [](double sum) { return stacked_bars({{"rank 0", {{"all", sum}}}}, {.limit = 10, .limit_name = "limit"}); };
  EXPECT_EQ(count_of(svg(10), "class=\"over\""), 0);
  EXPECT_EQ(count_of(svg(10.5), "class=\"over\""), 2) << "the part of the bar, and the figure";
}

TEST(PageDrawing, FieldsWithoutNumbersHaveThePeakOfEachRowAndALegend) {
  const std::string svg = heat_map({.rows = {"rank 0", "rank 1"},
                                    .columns = {"", ""},
                                    .values = {{4.5, 9}, {2, 3.25}},
                                    .unit_name = "GiB",
                                    .writes_values = false});
  EXPECT_THAT(all_between(svg, "text-anchor=\"start\">", "</text>"),
              ElementsAre("peak", "9 GiB", "3.25 GiB", "2 GiB", "9 GiB"));
  EXPECT_EQ(count_of(svg, "class=\"field\""), 4 + 5) << "the values, and the legend from the smallest to the largest";
}

// Otherwise texts of 11 pixels would have 3 on a phone.
TEST(PageDrawing, AWideDrawingScrollsInItsOwnBoxInsteadOfShrinking) {
  const std::string box = "<div class=\"wide\"><svg class=\"drawn\"";
  EXPECT_EQ(count_of(stacked_bars({{"all", {{"all", 1}}}}, {}), box), 1);
  EXPECT_EQ(count_of(heat_map({.rows = {"a"}, .columns = {"b"}, .values = {{1}}, .unit_name = "s"}), box), 1);
  for (const std::string& rule : all_between(page_style(), "svg.drawn {", "}")) EXPECT_THAT(rule, Not(HasSubstr("width")));
  for (const std::string& rule : all_between(page_style(), ".picture img {", "}")) EXPECT_THAT(rule, Not(HasSubstr("width")));
}

TEST(PageDrawing, FieldsHaveRoomForWhatIsWrittenIntoThem) {
  const std::string svg = heat_map({.rows = {"tensor 1"},
                                    .columns = {"pp 1", "pp 2"},
                                    .values = {{0.000364, 0.000255}},
                                    .unit_name = "s",
                                    .marks_least = true});
  const std::vector<std::string> x = all_between(svg, "<rect class=\"field\" fill-opacity=\"0.700\" x=\"", "\"");
  ASSERT_EQ(x.size(), 1);
  const std::vector<std::string> frame = all_between(svg, "<rect class=\"best\" x=\"", "\"");
  ASSERT_EQ(frame.size(), 1) << "around the smallest";
  EXPECT_GE(std::stod(frame[0]) - std::stod(x[0]), 7 * 8);
}

TEST(RunPage, LoadsNothingFromElsewhereAndAllowsNoScript) {
  const RunData run = small_run();
  const std::string page = to_page({&run, 1});
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\""));
  EXPECT_EQ(count_of(page, "<script"), 0);
  EXPECT_EQ(count_of(page, "<link"), 0);
  EXPECT_EQ(count_of(page, "src=\"http"), 0);
  EXPECT_EQ(count_of(page, "url("), 0);
  EXPECT_EQ(count_of(page, "{{"), 0);
  EXPECT_THAT(page, HasSubstr("@media (prefers-color-scheme: dark)"));
}

TEST(RunPage, ShowsTheFiguresOfTheRun) {
  const RunData run = small_run();
  const std::string page = to_page({&run, 1});
  for (const char* part :
       {"<title>runs/small</title>", "<dd>3 of 3</dd><dd class=\"more\">complete</dd>", "<dt>Loss</dt><dd>2.0000</dd>",
        "<dd>3.5000</dd><dd class=\"more\">best 3.5000 at step 2</dd>", "<dt>Tokens per second</dt><dd>1,000</dd>",
        "<dt>MFU</dt><dd>25.0 %</dd>", "<h2>Memory, planned</h2>", "<td>parameters</td><td>2.00</td>",
        "<td>2</td><td>checkpoint</td><td>its save began</td>", "Loss. training: 4 at step 1, 2 at step 3"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(RunPage, OfARunOnImagesCountsImagesAndShowsItsAccuracy) {
  const RunData run = small_image_run();
  const std::string page = to_page({&run, 1});
  for (const char* part : {"<dt>Images per second</dt><dd>1,000</dd>", "Throughput, images/s. images/s: 1000 at step 1",
                           "<dt>Validation accuracy</dt><dd>70.00 %</dd><dd class=\"more\">best 75.00 % at step 1</dd>",
                           "Validation accuracy, %. validation: 75 at step 1, 70 at step 3; from 70 to 75"})
    EXPECT_THAT(page, HasSubstr(part));
  for (const char* other : {"token", "Token", "tok/s"}) EXPECT_THAT(page, Not(HasSubstr(other)));
  const RunData text = small_run();
  const std::string of_text = to_page({&text, 1});
  for (const char* other : {"image", "Image", "ccuracy"})
    EXPECT_THAT(of_text.substr(of_text.find("<main>")), Not(HasSubstr(other)));
}

TEST(RunPage, RunsOnImagesAndOnTextDrawnOverEachOtherCountTargets) {
  const RunData images[] = {small_image_run(), small_image_run()}, both[] = {small_image_run(), small_run()},
                texts[] = {small_run(), small_run()};
  EXPECT_THAT(to_page(images), HasSubstr("<th>img/s</th>"));
  EXPECT_THAT(to_page(images), HasSubstr("<th>accuracy</th>"));
  EXPECT_THAT(to_page(images), HasSubstr("Throughput, images/s"));
  EXPECT_THAT(to_page(both), HasSubstr("<th>targets/s</th>"));
  EXPECT_THAT(to_page(both), HasSubstr("Throughput, targets/s"));
  EXPECT_THAT(to_page(both), HasSubstr("<td>70.00 %</td><td>1,000</td>"));
  EXPECT_THAT(to_page(texts), HasSubstr("<th>best</th><th>tok/s</th>"));
  EXPECT_THAT(to_page(texts), HasSubstr("Throughput, tokens/s"));
}

TEST(RunPage, ShowsImagesWithWhatTheModelPredicts) {
  const RunData run = small_image_run("an image");
  const std::string page = to_page({&run, 1});
  EXPECT_THAT(page, HasSubstr("<h2>Predictions after step 3</h2>"));
  EXPECT_THAT(page, HasSubstr("<li class=\"wrong\"><img alt=\"Validation image 17\" src=\"data:image/png;base64,YW4gaW1hZ2U=\">"
                              "<span><b>1</b><br>is 7</span></li>"));
  EXPECT_THAT(
      page, HasSubstr("<li><img alt=\"Validation image 4\" src=\"data:image/png;base64,YW4gaW1hZ2U=\"><span>two</span></li>"));
  const RunData none = small_run();
  EXPECT_THAT(to_page({&none, 1}), Not(HasSubstr("<h2>Predictions")));
}

TEST(RunPage, ShowsTextWithWhatTheModelPredicts) {
  RunData run = small_run();
  run.predictions = {.step = 2,
                     .samples = {{.sample = 0, .right = false, .before = "To be, ", .target = "or", .predicted = "is"}}};
  EXPECT_THAT(to_page({&run, 1}), HasSubstr("<td>To be, </td><td>or</td><td>is</td>"));
  run.predictions.samples = {{.png = "x", .target = "", .predicted = "a"}};  // an image of no text
  EXPECT_THAT(to_page({&run, 1}), HasSubstr("<b>a</b><br>is nothing"));
}

TEST(RunPage, TextsFromFilesCannotBecomePartOfThePage) {
  RunData run = small_run();
  const std::string evil = "</pre><script>alert(1)</script>\"'";
  run.name = run.config_json = run.plan_text = run.last_start_json = evil;
  run.facts = run.end_facts = {{evil, evil}};
  run.notes.push_back({1, "timeline", evil});
  run.memory = {{evil, 1, 1}};
  run.plan.communication = {{evil, 1}};
  run.ranks = {{0, 1, 1}};
  run.timeline_svg = evil;
  RunData on_images = run;
  run.predictions.samples = {{.before = evil, .target = evil, .predicted = evil}};
  on_images.predictions.samples = {{.png = evil, .target = evil, .predicted = evil},
                                   {.right = true, .png = evil, .target = evil, .predicted = evil}};
  const RunData runs[] = {run, run};
  for (const std::string& page :
       {to_page({&run, 1}), to_page({&on_images, 1}), to_page(runs), to_live_page(run, "n"), to_live_page(on_images, "n")})
    EXPECT_EQ(count_of(page, "<script>"), 0);
}

TEST(RunPage, SeveralRunsAreDrawnOverEachOtherAndDifferencesOfTheirConfigsListed) {
  RunData first = small_run(), second = small_run();
  first.name = "one", second.name = "two", second.state = RunState::Unfinished;
  first.config_json = R"({"optimizer": {"lr": 1, "type": "SGD"}})",
  second.config_json = R"({"optimizer": {"lr": 2, "type": "SGD"}})";
  const RunData runs[] = {first, second};
  const std::string page = to_page(runs);
  EXPECT_THAT(page, HasSubstr("one: 4 at step 1, 2 at step 3; from 2 to 4. two: 4 at step 1"));
  EXPECT_THAT(page, HasSubstr("</svg>two</span> <span>dashed: validation</span> </p>"));
  EXPECT_THAT(page, HasSubstr("<td>two</td><td>3 of 3</td><td>not ended: it is running, or was killed</td>"));
  EXPECT_THAT(page, HasSubstr("<td>optimizer.lr</td><td>1</td><td>2</td>"));
  EXPECT_THAT(page, Not(HasSubstr("optimizer.type")));
}

TEST(RunPage, ARunWithoutStepsHasAPage) {
  RunData run;
  run.name = "new";
  EXPECT_THAT(to_page({&run, 1}), HasSubstr("<h1>new</h1>"));
  const RunData runs[] = {run, run};
  EXPECT_THAT(to_page(runs), HasSubstr("<h1>2 runs</h1>"));
}

}  // namespace
}  // namespace trivet::report
