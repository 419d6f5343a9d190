#include "engine/report/page_drawing.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/report/embedded_text.h"

namespace trivet::report {
namespace {

constexpr double kLabel = 90, kWidth = 760, kTotal = 90, kRow = 26, kBox = 20, kField = 46, kLegendRow = 18;
constexpr size_t kColors = 7;  // of the style sheet

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

std::string svg(double width, double height, const std::string& content) {
  return fmt::format(
      "<svg class=\"drawn\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n{2}</svg>\n",
      width, height, content);
}

double sum_of(const Bar& bar) {
  double sum = 0;
  for (const NamedValue& part : bar.parts) sum += part.value;
  return sum;
}

struct Legend {
  std::string text;
  double height = kLegendRow;
};

// Below `top`. Characters are about 7 wide.
Legend legend(const std::vector<NamedValue>& parts, double top) {
  Legend legend;
  double x = kLabel;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double width = 36 + 7 * static_cast<double>(parts[i].name.size());
    if (x > kLabel && x + width > kLabel + kWidth + kTotal) x = kLabel, legend.height += kLegendRow;
    const double y = top + legend.height;
    legend.text +=
        fmt::format("<rect class=\"c{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\"/>\n", i % kColors, x, y - 11);
    legend.text += text_at(x + 16, y, parts[i].name);
    x += width;
  }
  return legend;
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

std::string_view page_style() { return kPageCss; }

std::string stacked_bars(const std::vector<Bar>& bars, const BarOptions& options) {
  double most = options.limit;
  for (const Bar& bar : bars) most = std::max(most, sum_of(bar));
  const double top = options.limit > 0 ? 20 : 4, bottom = top + kRow * static_cast<double>(bars.size());
  const double scale = (kWidth - 10) / most;
  std::string text;
  for (size_t b = 0; b < bars.size(); ++b) {
    const double y = kRow * static_cast<double>(b) + top;
    double x = kLabel;
    text += text_at(kLabel - 8, y + 15, bars[b].label, "end");
    for (size_t i = 0; i < bars[b].parts.size(); ++i) {
      const NamedValue& part = bars[b].parts[i];
      text += fmt::format(
          "<rect class=\"c{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\"><title>{}: {:.4g} "
          "{}</title></rect>\n",
          i % kColors, x, y, part.value * scale, kBox, escaped(part.name), part.value / options.unit,
          escaped(options.unit_name));
      x += part.value * scale;
    }
    text += text_at(kLabel + kWidth + 6, y + 15, fmt::format("{:.4g} {}", sum_of(bars[b]) / options.unit, options.unit_name));
  }
  if (options.limit > 0) {
    const double x = kLabel + options.limit * scale;
    text += fmt::format("<line class=\"limit\" x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"16\" y2=\"{1:.1f}\"/>\n", x, bottom);
    text +=
        text_at(x, 12, fmt::format("{} {:.4g} {}", options.limit_name, options.limit / options.unit, options.unit_name), "end");
  }
  const Legend names = legend(bars.front().parts, bottom);
  return svg(kLabel + kWidth + kTotal, bottom + names.height + 8, text + names.text);
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
  const double field = map.writes_values ? kField : kWidth / static_cast<double>(map.columns.size());
  std::string text;
  for (size_t column = 0; column < map.columns.size(); ++column)
    text += text_at(kLabel + field * (static_cast<double>(column) + 0.5), 14, map.columns[column], "middle");
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kRow * static_cast<double>(row) + 20;
    text += text_at(kLabel - 8, y + 17, map.rows[row], "end");
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const auto& value = map.values[row][column];
      const double x = kLabel + field * static_cast<double>(column);
      const double shade = value && most > least ? 0.08 + 0.62 * (*value - least) / (most - least) : 0.08;
      text += fmt::format(
          "<rect class=\"{}\" fill-opacity=\"{:.3f}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
          "height=\"{}\"><title>{}</title></rect>\n",
          value ? "field" : "none", shade, x, y, field, kRow,
          value ? fmt::format("{:.4g} {}", *value, escaped(map.unit_name)) : "none fits");
      if (map.writes_values && value) text += text_at(x + field / 2, y + 17, fmt::format("{:.3g}", *value), "middle");
    }
  }
  return svg(kLabel + field * static_cast<double>(map.columns.size()) + 10, kRow * static_cast<double>(map.rows.size()) + 26,
             text);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  return "<table>\n" + rows_of_table(rows) + "</table>\n";
}

std::string table_of_figures(const std::vector<std::vector<std::string>>& rows) {
  return "<table class=\"figures\">\n" + rows_of_table(rows) + "</table>\n";
}

}  // namespace trivet::report
