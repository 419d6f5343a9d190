#include "report/page_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/embedded_text.h"
#include "report/monitor/number_text.h"

namespace trivet::report {
namespace {

constexpr double kLabel = 90, kWidth = 760, kTotal = 90, kRow = 26, kBox = 20, kField = 46, kLegendRow = 18;
constexpr double kCharacter = 7;  // about as wide as one of the letters

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start", const char* style = "") {
  return fmt::format("<text{} x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                     *style ? fmt::format(" class=\"{}\"", style) : "", x, y, anchor, escaped(text));
}

std::string svg(double width, double height, const std::string& content) {
  return fmt::format(
      "<div class=\"wide\"><svg class=\"drawn\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n{2}</svg></div>\n",
      width, height, content);
}

double sum_of(const Bar& bar) {
  double sum = 0;
  for (const NamedValue& part : bar.parts) sum += part.value;
  return sum;
}

double width_of(const std::string& text) { return kCharacter * static_cast<double>(text.size()); }

// Returns a margin as wide as the longest text, but not narrower than `least`.
double margin_for(const std::vector<std::string>& texts, double least) {
  for (const std::string& text : texts) least = std::max(least, width_of(text) + 10);
  return least;
}

std::string figure(double value, const std::string& unit_name) {
  const std::string digits = std::abs(value) < 1000 || std::abs(value) > 1e15 ? fmt::format("{:.4g}", value)
                                                                              : monitor::with_commas(std::llround(value));
  return digits + " " + unit_name;
}

std::string written_value(double value) { return fmt::format("{:.3g}", value); }

// The attribute that fills a part: with the colour of its category, or with one of the page's by its number.
std::string fill_of(const NamedValue& part, size_t number) {
  const std::string_view colour = colour_of(part.name);
  return colour.empty() ? fmt::format("class=\"c{}\"", number % kColors) : fmt::format("fill=\"{}\"", colour);
}

struct Legend {
  std::string text;
  double height = kLegendRow;
};

// Below `top`, from `left` to `right`; `mark` is empty or the name of the line across the bars.
Legend legend(const std::vector<NamedValue>& parts, const std::string& mark, double top, double left, double right) {
  Legend legend;
  double x = left;
  const auto add = [&](const std::string& name, const auto& sample) {
    const double width = 36 + width_of(name);
    if (x > left && x + width > right) x = left, legend.height += kLegendRow;
    const double y = top + legend.height;
    legend.text += sample(y) + text_at(x + 16, y, name);
    x += width;
  };
  for (size_t i = 0; i < parts.size(); ++i)
    add(parts[i].name, [&](double y) {
      return fmt::format("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\"/>\n", fill_of(parts[i], i), x, y - 11);
    });
  if (!mark.empty())
    add(mark, [&](double y) {
      return fmt::format("<line class=\"ideal\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n", x + 6, y - 12,
                         y + 2);
    });
  return legend;
}

// A field of a heat map whose value is `share` of the way from the smallest to the largest.
std::string field_at(double x, double y, double width, double share, const std::string& title) {
  return fmt::format(
      "<rect class=\"field\" fill-opacity=\"{:.3f}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
      "height=\"{}\"><title>{}</title></rect>\n",
      0.08 + 0.62 * share, x, y, width, kRow, escaped(title));
}

// From the smallest to the largest value of a heat map, from left to right.
std::string scale_of_fields(double left, double y, const std::string& least, const std::string& most) {
  constexpr int kSteps = 5;
  std::string text = text_at(left, y + 17, least);
  double x = left + width_of(least) + 8;
  for (int step = 0; step < kSteps; ++step, x += kBox) text += field_at(x, y, kBox, step / (kSteps - 1.0), "");
  return text + text_at(x + 8, y + 17, most);
}

std::string rows_of_table(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "<tr>";
    for (const std::string& cell : rows[r]) text += fmt::format("<{0}>{1}</{0}>", r == 0 ? "th" : "td", escaped(cell));
    text += "</tr>\n";
  }
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

std::string page_style() {
  std::string colours;
  for (size_t i = 0; i < kSeriesColours.size(); ++i) colours += fmt::format(" --c{}: {};", i, kSeriesColours[i]);
  return fmt::format("{}:root {{{} }}\n", kPageCss, colours);
}

std::string stacked_bars(const std::vector<Bar>& bars, const BarOptions& options) {
  const auto shown = [&](double value) { return figure(value / options.unit, options.unit_name); };
  double most = options.limit;
  std::vector<std::string> labels, sums;
  std::string mark;
  for (const Bar& bar : bars) {
    most = std::max({most, sum_of(bar), bar.mark ? bar.mark->value : 0});
    if (bar.mark) mark = bar.mark->name;
    labels.push_back(bar.label);
    sums.push_back(shown(sum_of(bar)));
  }
  const double left = margin_for(labels, kLabel), right = left + kWidth + margin_for(sums, kTotal);
  const double top = options.limit > 0 ? 20 : 4, bottom = top + kRow * static_cast<double>(bars.size());
  const double scale = most > 0 ? (kWidth - 10) / most : 0;
  std::string text;
  for (size_t b = 0; b < bars.size(); ++b) {
    const double y = kRow * static_cast<double>(b) + top;
    double x = left;
    text += text_at(left - 8, y + 15, bars[b].label, "end");
    for (size_t i = 0; i < bars[b].parts.size(); ++i) {
      const NamedValue& part = bars[b].parts[i];
      text += fmt::format("<rect {} x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>{}: {}</title></rect>\n",
                          fill_of(part, i), x, y, part.value * scale, kBox, escaped(part.name), escaped(shown(part.value)));
      x += part.value * scale;
    }
    if (bars[b].mark)
      text += fmt::format(
          "<line class=\"ideal\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"><title>{3}: {4}</title></line>\n",
          left + bars[b].mark->value * scale, y - 2, y + kBox + 2, escaped(bars[b].mark->name),
          escaped(shown(bars[b].mark->value)));
    const bool is_over = options.limit > 0 && sum_of(bars[b]) > options.limit;
    if (is_over)
      text += fmt::format("<rect class=\"over\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"/>\n",
                          left + options.limit * scale, y - 2, x - left - options.limit * scale, kBox + 4);
    text += text_at(left + kWidth + 6, y + 15, sums[b], "start", is_over ? "over" : "");
  }
  if (options.limit > 0) {
    const double x = left + options.limit * scale;
    text += fmt::format("<line class=\"limit\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"16\" y2=\"{1:.1f}\"/>\n", x, bottom);
    text += text_at(x, 12, options.limit_name + " " + shown(options.limit), "end");
  }
  const Legend names = legend(bars.front().parts, mark, bottom, left, right);
  return svg(right, bottom + names.height + 8, text + names.text);
}

std::string heat_map(const HeatMap& map) {
  double most = 0, least = 0;
  bool any = false;
  for (const auto& row : map.values)
    for (const auto& value : row) {
      if (!value) continue;
      most = any ? std::max(most, *value) : *value, least = any ? std::min(least, *value) : *value;
      any = true;
    }
  const double left = margin_for(map.rows, kLabel);
  std::vector<std::string> written = map.columns;
  for (const auto& row : map.values)
    for (const auto& value : row)
      if (map.writes_values && value) written.push_back(written_value(*value));
  const double field = map.writes_values ? margin_for(written, kField) : kWidth / static_cast<double>(map.columns.size());
  std::string text;
  for (size_t column = 0; column < map.columns.size(); ++column)
    text += text_at(left + field * (static_cast<double>(column) + 0.5), 14, map.columns[column], "middle");
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kRow * static_cast<double>(row) + 20;
    text += text_at(left - 8, y + 17, map.rows[row], "end");
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const auto& value = map.values[row][column];
      const double x = left + field * static_cast<double>(column);
      if (!value) {
        text += fmt::format(
            "<rect class=\"none\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>none fits</title></rect>\n",
            x, y, field, kRow);
        continue;
      }
      text += field_at(x, y, field, most > least ? (*value - least) / (most - least) : 0, figure(*value, map.unit_name));
      if (map.writes_values) text += text_at(x + field / 2, y + 17, written_value(*value), "middle");
      if (map.marks_least && *value == least)
        text += fmt::format("<rect class=\"best\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"/>\n", x + 1, y + 1,
                            field - 2, kRow - 2);
    }
  }
  const double right = left + field * static_cast<double>(map.columns.size());
  const double bottom = kRow * static_cast<double>(map.rows.size()) + 26;
  if (map.writes_values) return svg(right + 10, bottom, text);
  std::vector<std::string> peaks{"peak"};
  for (const auto& row : map.values) peaks.push_back(figure(std::ranges::max_element(row)->value_or(0), map.unit_name));
  for (size_t row = 0; row < peaks.size(); ++row)
    text += text_at(right + 8, row == 0 ? 14 : kRow * static_cast<double>(row) + 11, peaks[row]);
  text += scale_of_fields(left, bottom, figure(least, map.unit_name), figure(most, map.unit_name));
  return svg(right + margin_for(peaks, kTotal), bottom + kRow + 8, text);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  return "<table>\n" + rows_of_table(rows) + "</table>\n";
}

std::string table_of_figures(const std::vector<std::vector<std::string>>& rows) {
  return "<table class=\"figures\">\n" + rows_of_table(rows) + "</table>\n";
}

std::string table_of_runs(const std::vector<std::vector<std::string>>& rows) {
  return "<div class=\"runs\">\n" + table_of_figures(rows) + "</div>\n";
}

}  // namespace trivet::report
