#include "report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "report/chart_axis.h"
#include "report/monitor/number_text.h"
#include "report/page_drawing.h"

namespace trivet::report {
namespace {

constexpr double kChartWidth = 480, kChartHeight = 234, kMarginLeft = 56, kMarginRight = 22, kMarginTop = 10,
                 kMarginBottom = 38;
constexpr double kHalfDigit = 3.5;
constexpr int kColumns = static_cast<int>(kChartWidth - kMarginLeft - kMarginRight);
constexpr size_t kMostMarks = 200;

using Points = std::vector<std::pair<double, double>>;

Points drawn(const Points& points) {
  Points drawn;
  for (const auto& point : points)
    if (std::abs(point.second) <= kMostDrawn) drawn.push_back(point);
  return drawn;
}

// The area between the axes.
struct Area {
  ChartAxis steps, values;

  double x(double step) const { return kMarginLeft + (kChartWidth - kMarginLeft - kMarginRight) * steps.share(step); }
  double y(double value) const {
    return kChartHeight - kMarginBottom - (kChartHeight - kMarginTop - kMarginBottom) * values.share(value);
  }
};

Area area_of(const LineChart& chart, const std::vector<Points>& lines) {
  Range steps, values;
  for (const Points& points : lines)
    for (const auto& [step, value] : points) steps.add(step), values.add(value);
  return {axis_of_steps(steps),
          chart.logarithmic ? logarithmic_axis_of_values(values) : axis_of_values(values, chart.from_zero)};
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

std::string axes(const Area& area, const std::string& counts) {
  std::string text;
  for (const Tick& tick : area.values.ticks) {
    const double y = area.y(tick.value);
    text += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>\n", kMarginLeft, y,
                        kChartWidth - kMarginRight);
    text += label(kMarginLeft - 6, y + 4, "end", tick.text);
  }
  for (const Tick& tick : area.steps.ticks) {
    const double most = kChartWidth - kHalfDigit * static_cast<double>(tick.text.size());  // so that it is not cut off
    text += label(std::min(area.x(tick.value), most), kChartHeight - kMarginBottom + 20, "middle", tick.text);
  }
  return text + label(kChartWidth - kMarginRight, kChartHeight - 2, "end", counts);
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

// Mean and range of the points in each column of pixels; of a pale line the range alone.
std::string dense_line(const Points& points, const Area& area, const Line& shown) {
  const int color = shown.color % kColors;
  std::string mean, upper, lower;
  const std::vector<Column> columns = columns_of(points, area);
  for (size_t at = 0; at < columns.size(); ++at) {
    if (columns[at].count == 0) continue;
    const double x = kMarginLeft + static_cast<double>(at);
    mean += fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].sum / static_cast<double>(columns[at].count)));
    upper += fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].range.high));
    lower = fmt::format("{:.1f},{:.1f} ", x, area.y(columns[at].range.low)) + lower;
  }
  const std::string band = fmt::format("<polygon class=\"band b{}\" points=\"{}{}\"/>\n", color, upper, lower);
  return shown.style == LineStyle::Pale ? band : band + polyline(fmt::format("l{}", color), mean);
}

std::string dots(const Points& points, const Area& area, const Line& shown, const std::string& counts) {
  std::string text;
  for (const auto& [step, value] : points)
    text +=
        fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {:.5g} at {} {}</title></circle>\n",
                    shown.color % kColors, area.x(step), area.y(value), escaped(shown.name), value, counts, step);
  return text;
}

std::string solid_line(const Points& points, const Area& area, const Line& shown) {
  if (points.size() > static_cast<size_t>(kColumns)) return dense_line(points, area, shown);
  constexpr std::array<const char*, 3> kClasses{"", " pale", " rare"};  // by style
  std::string corners;
  for (const auto& [step, value] : points) corners += fmt::format("{:.1f},{:.1f} ", area.x(step), area.y(value));
  return polyline(fmt::format("l{}{}", shown.color % kColors, kClasses[static_cast<size_t>(shown.style)]), corners);
}

// A line with its dots: at each point, or where it ends before others.
std::string line(const Points& points, const Area& area, const Line& shown, const std::string& counts) {
  if (shown.style == LineStyle::Dots) return dots(points, area, shown, counts);
  const std::string text = solid_line(points, area, shown);
  if (shown.style == LineStyle::Dashed && points.size() <= static_cast<size_t>(kColumns))
    return text + dots(points, area, shown, counts);
  const bool ends_early = points.size() == 1 || points.back().first < area.steps.range.high;
  return shown.style == LineStyle::Solid && ends_early ? text + dots({points.back()}, area, shown, counts) : text;
}

std::string marks(const std::vector<Mark>& marks, const Area& area) {
  std::string text;
  for (size_t i = 0; i < std::min(marks.size(), kMostMarks); ++i) {
    const Mark& mark = marks[i];
    if (mark.step < area.steps.range.low || mark.step > area.steps.range.high) continue;
    text += fmt::format("<path class=\"mark\" d=\"M{:.1f} {:.1f}l-4 -7h8z\"><title>{}</title></path>\n", area.x(mark.step),
                        kChartHeight - kMarginBottom, escaped(mark.name));
  }
  return text;
}

// The last value up to this step. After the end of a line there is none, except if its values are rare.
std::string value_text(const Line& shown, double step) {
  const auto after = std::ranges::upper_bound(shown.points, step, {}, &std::pair<double, double>::first);
  const bool none = after == shown.points.begin() || (shown.style == LineStyle::Solid && step > shown.points.back().first);
  return none ? "" : fmt::format("{:.5g}", std::prev(after)->second);
}

// Says of a line that ends before others how far it goes.
std::string extent(const Line& line, const std::string& counts, double last) {
  if (line.style != LineStyle::Solid) return "";
  const auto end = std::ranges::find_if(line.points.rbegin(), line.points.rend(),
                                        [](const auto& point) { return std::abs(point.second) <= kMostDrawn; });
  if (end == line.points.rend()) return " (no values)";
  return end->first < last ? fmt::format(" (to {} {})", counts, monitor::with_commas(std::llround(end->first))) : "";
}

// A dashed line in the colour of a solid one needs none.
bool has_entry(const Line& line, const LineChart& chart) {
  const auto like_it = [&](const Line& other) { return other.style == LineStyle::Solid && other.color == line.color; };
  return line.style != LineStyle::Pale && (line.style != LineStyle::Dashed || std::ranges::none_of(chart.lines, like_it));
}

std::string legend(const LineChart& chart) {
  std::string text;
  double last = 0;
  for (const Line& line : chart.lines)
    if (line.style == LineStyle::Solid && !line.points.empty()) last = std::max(last, line.points.back().first);
  for (const Line& line : chart.lines)
    if (has_entry(line, chart) && chart.lines.size() > 1)
      text += fmt::format(
          "<span><svg aria-hidden=\"true\" viewBox=\"0 0 12 12\"><rect class=\"c{}\" width=\"12\" "
          "height=\"12\"{}/></svg>{}</span> ",
          line.color % kColors, line.style != LineStyle::Solid ? " rx=\"6\"" : "",
          escaped(line.name + extent(line, chart.counts, last)));
  if (!chart.note.empty()) text += fmt::format("<span>{}</span> ", chart.note);
  if (!chart.marks.empty()) text += "<span>\u25bc checkpoint or skipped step</span>";
  return text.empty() ? "" : "<p class=\"legend\">" + text + "</p>\n";
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
      "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      kChartWidth, kChartHeight, escaped(chart.title + ". " + in_words(chart)));
  text += axes(area, chart.counts);
  for (size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty()) text += line(lines[i], area, chart.lines[i], chart.counts);
  return text + marks(chart.marks, area) + "</svg>\n";
}

std::string in_words(const LineChart& chart) {
  std::string text;
  for (const Line& shown : chart.lines) {
    const Points points = drawn(shown.points);
    if (points.empty() || shown.style == LineStyle::Pale) continue;
    Range range;
    for (const auto& point : points) range.add(point.second);
    text += fmt::format("{0}{1}: {2:.4g} at {8} {3}, {4:.4g} at {8} {5}; from {6:.4g} to {7:.4g}", text.empty() ? "" : ". ",
                        shown.name, points.front().second, points.front().first, points.back().second, points.back().first,
                        range.low, range.high, chart.counts);
  }
  return chart.note.empty() ? text : text + ". " + chart.note;
}

std::vector<std::vector<std::string>> figures_of(const LineChart& chart, size_t rows) {
  std::vector<std::vector<std::string>> table{{chart.counts}};
  std::vector<Line> lines;
  std::vector<double> steps;
  for (const Line& shown : chart.lines) {
    if (shown.style == LineStyle::Pale) continue;
    table[0].push_back(shown.name);
    lines.push_back({.name = shown.name, .points = drawn(shown.points), .style = shown.style});
    for (const auto& point : lines.back().points) steps.push_back(point.first);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const size_t count = std::min(rows, steps.size());
  for (size_t row = 0; row < count; ++row) {
    const double step = steps[count == 1 ? 0 : row * (steps.size() - 1) / (count - 1)];
    auto& cells = table.emplace_back(std::vector{monitor::with_commas(std::llround(step))});
    for (const Line& shown : lines) cells.push_back(value_text(shown, step));
  }
  return table;
}

std::string figure(const LineChart& chart, const std::string& id) {
  return fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n{}{}<details id=\"{}\"><summary>Figures</summary>\n{}</details>\n</figure>\n",
      escaped(chart.title), to_svg(chart), legend(chart), id, table_of_figures(figures_of(chart)));
}

}  // namespace trivet::report
