#include "engine/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "engine/monitor/number_text.h"
#include "engine/report/page_drawing.h"

namespace trivet::report {
namespace {

constexpr double kChartWidth = 480, kChartHeight = 230, kMarginLeft = 56, kMarginRight = 22, kMarginTop = 10,
                 kMarginBottom = 34;
constexpr int kMostTicks = 20;
constexpr int kColumns = static_cast<int>(kChartWidth - kMarginLeft - kMarginRight);
constexpr size_t kMostMarks = 200;

using Points = std::vector<std::pair<double, double>>;

constexpr double kMostDrawn = 1e300;  // differences of larger values are not finite

Points drawn(const Points& points) {
  Points drawn;
  for (const auto& point : points)
    if (std::abs(point.second) <= kMostDrawn) drawn.push_back(point);
  return drawn;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  bool empty() const { return low > high; }
  double length() const { return high - low; }
};

// The numbers at an axis.
struct Ticks {
  double distance = 1;  // 1, 2 or 5 times a power of 10
  double unit = 1;      // what the texts count
  const char* letter = "";

  std::string text(double value) const {
    const double shown = std::abs(value) < 1e-9 * distance ? 0 : value / unit, between = distance / unit;
    if (between < 1e-5 || std::abs(shown) >= 1e15) return fmt::format("{:.4g}{}", shown, letter);
    if (between >= 1) return monitor::with_commas(std::llround(shown)) + letter;
    return fmt::format("{:.{}f}{}", shown, static_cast<int>(std::ceil(-std::log10(between) - 1e-9)), letter);
  }
};

// About `count` of them.
Ticks ticks_of(const Range& range, int count) {
  constexpr std::array<std::pair<double, const char*>, 3> kUnits{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}}};
  const double rough = range.length() / count, power = std::pow(10, std::floor(std::log10(rough)));
  Ticks ticks{.distance = 10 * power};
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * 0.999) ticks.distance = factor * power;
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit)
    if (largest >= unit->first) std::tie(ticks.unit, ticks.letter) = *unit;
  return ticks;
}

// The area between the axes.
struct Area {
  Range steps, values;
  Ticks value_ticks;

  double x(double step) const {
    return kMarginLeft + (kChartWidth - kMarginLeft - kMarginRight) * (step - steps.low) / steps.length();
  }
  double y(double value) const {
    return kChartHeight - kMarginBottom - (kChartHeight - kMarginTop - kMarginBottom) * (value - values.low) / values.length();
  }
};

// An axis for values that are all equal, or differ by less than can be drawn.
void widen(Range& values, bool from_zero) {
  const double largest = std::max(std::abs(values.low), std::abs(values.high));
  if (values.length() > std::max(1e-12 * largest, 1e-290)) return;
  const double around = largest < 1e-289 ? 1 : 0.1 * largest;
  values.add(values.high + around);
  if (!from_zero) values.add(values.low - around);
}

// The axis of values begins and ends at a tick.
Area area_of(const LineChart& chart, const std::vector<Points>& lines) {
  Area area;
  if (chart.from_zero) area.values.add(0);
  for (const Points& points : lines)
    for (const auto& [step, value] : points) area.steps.add(step), area.values.add(value);
  widen(area.values, chart.from_zero);
  area.value_ticks = ticks_of(area.values, 5);
  const double each = area.value_ticks.distance;
  area.values.add(std::floor(area.values.low / each + 1e-6) * each);
  area.values.add(std::ceil(area.values.high / each - 1e-6) * each);
  if (area.steps.length() == 0) area.steps.add(area.steps.low + 1);
  return area;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

std::string axes(const Area& area) {
  std::string text;
  const auto segment = [](double x1, double y1, double x2, double y2) {
    return fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", x1, y1, x2, y2);
  };
  const double each = area.value_ticks.distance;
  const double lowest = std::ceil(area.values.low / each - 1e-6) * each;
  for (int i = 0; i < kMostTicks && lowest + i * each <= area.values.high + 1e-6 * each; ++i) {
    const double value = lowest + i * each;
    text += segment(kMarginLeft, area.y(value), kChartWidth - kMarginRight, area.y(value));
    text += label(kMarginLeft - 6, area.y(value) + 4, "end", area.value_ticks.text(value));
  }
  Ticks steps = ticks_of(area.steps, 5);
  steps.distance = std::max(steps.distance, 1.0);
  const double first = std::ceil(area.steps.low / steps.distance) * steps.distance;
  for (int i = 0; i < kMostTicks && first + i * steps.distance <= area.steps.high; ++i) {
    const double step = first + i * steps.distance;
    text += label(area.x(step), kChartHeight - kMarginBottom + 16, "middle", steps.text(step));
  }
  return text + label(kChartWidth - kMarginRight, kChartHeight - 2, "end", "step");
}

struct Column {
  Range range;
  double sum = 0;
  int64_t count = 0;
};

// [column of pixels] What falls into it.
std::vector<Column> columns_of(const Points& points, const Area& area) {
  std::vector<Column> columns(kColumns);
  for (const auto& [step, value] : points) {
    const auto at = static_cast<size_t>(std::clamp(area.x(step) - kMarginLeft, 0.0, kColumns - 1.0));
    columns[at].range.add(value);
    columns[at].sum += value;
    ++columns[at].count;
  }
  return columns;
}

std::string polyline(const std::string& css_class, const std::string& points) {
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", css_class, points);
}

// Mean and range of the points in each column of pixels.
std::string dense_line(const Points& points, const Area& area, int color) {
  std::string mean, upper, lower;
  const std::vector<Column> columns = columns_of(points, area);
  for (size_t at = 0; at < columns.size(); ++at) {
    if (columns[at].count == 0) continue;
    const double x = kMarginLeft + static_cast<double>(at);
    mean += fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].sum / static_cast<double>(columns[at].count)));
    upper += fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].range.high));
    lower = fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].range.low)) + lower;
  }
  return fmt::format("<polygon class=\"band b{}\" points=\"{}{}\"/>\n", color, upper, lower) +
         polyline(fmt::format("l{}", color), mean);
}

std::string line(const Points& points, const Area& area, const Line& shown) {
  const int color = shown.color % kColors;
  if (points.size() > static_cast<size_t>(kColumns)) return dense_line(points, area, color);
  std::string corners, dots;
  for (const auto& [step, value] : points) {
    corners += fmt::format("{:.1f},{:.1f} ", area.x(step), area.y(value));
    if (shown.dots || points.size() == 1)
      dots += fmt::format(
          "<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {:.5g} at step {}</title></circle>\n", color,
          area.x(step), area.y(value), escaped(shown.name), value, step);
  }
  return polyline(fmt::format("l{}{}", color, shown.dots ? " rare" : ""), corners) + dots;
}

std::string marks(const std::vector<Mark>& marks, const Area& area) {
  std::string text;
  for (size_t i = 0; i < std::min(marks.size(), kMostMarks); ++i) {
    const Mark& mark = marks[i];
    if (mark.step < area.steps.low || mark.step > area.steps.high) continue;
    text += fmt::format("<path class=\"mark\" d=\"M{:.1f} {:.1f}l-4 -7h8z\"><title>{}</title></path>\n", area.x(mark.step),
                        kChartHeight - kMarginBottom, escaped(mark.name));
  }
  return text;
}

std::string value_text(const Points& points, double step) {
  const auto after = std::upper_bound(points.begin(), points.end(), step,
                                      [](double wanted, const auto& point) { return wanted < point.first; });
  return after == points.begin() ? "" : fmt::format("{:.5g}", std::prev(after)->second);
}

}  // namespace

bool is_empty(const LineChart& chart) {
  return std::ranges::all_of(chart.lines, [](const Line& shown) { return drawn(shown.points).empty(); });
}

std::string to_svg(const LineChart& chart) {
  if (is_empty(chart)) return "";
  std::vector<Points> lines;
  for (const Line& shown : chart.lines) lines.push_back(drawn(shown.points));
  const Area area = area_of(chart, lines);
  std::string text = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      kChartWidth, kChartHeight, escaped(chart.title + ". " + in_words(chart)));
  text += axes(area);
  for (size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty()) text += line(lines[i], area, chart.lines[i]);
  return text + marks(chart.marks, area) + "</svg>\n";
}

std::string in_words(const LineChart& chart) {
  std::string text;
  for (const Line& shown : chart.lines) {
    const Points points = drawn(shown.points);
    if (points.empty()) continue;
    Range range;
    for (const auto& point : points) range.add(point.second);
    text += fmt::format("{}{}: {:.4g} at step {}, {:.4g} at step {}; from {:.4g} to {:.4g}", text.empty() ? "" : ". ",
                        shown.name, points.front().second, points.front().first, points.back().second, points.back().first,
                        range.low, range.high);
  }
  return text;
}

std::vector<std::vector<std::string>> figures_of(const LineChart& chart, size_t rows) {
  std::vector<std::vector<std::string>> table{{"step"}};
  std::vector<Points> lines;
  std::vector<double> steps;
  for (const Line& shown : chart.lines) {
    table[0].push_back(shown.name);
    for (const auto& point : lines.emplace_back(drawn(shown.points))) steps.push_back(point.first);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const size_t shown = std::min(rows, steps.size());
  for (size_t row = 0; row < shown; ++row) {
    const double step = steps[shown == 1 ? 0 : row * (steps.size() - 1) / (shown - 1)];
    auto& cells = table.emplace_back(std::vector{fmt::format("{:.0f}", step)});
    for (const Points& points : lines) cells.push_back(value_text(points, step));
  }
  return table;
}

}  // namespace trivet::report
