// Drawings for a page: SVG and HTML in the colours of the page's style sheet (light and dark). A drawing keeps its size, so
// that its texts can be read; on a narrow screen it scrolls in a box of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/colours.h"

namespace trivet::report {

inline constexpr int kColors = static_cast<int>(kSeriesColours.size());  // classes of the style sheet, c0 to c6

struct NamedValue {
  std::string name;
  double value = 0;
};

// Escapes text and attributes of HTML and SVG.
std::string escaped(std::string_view text);

// The style sheet: page.css, and the colours c0, c1 ... of lines and parts.
std::string page_style();

struct Bar {
  std::string label;
  std::vector<NamedValue> parts;
  std::optional<NamedValue> mark = {};  // a line across the bar, for a value that its sum is compared with
};
struct BarOptions {
  double limit = 0;  // drawn as a line; 0: none
  std::string limit_name;
  double unit = 1;        // the value that the text shows as 1
  std::string unit_name;  // "GiB"
};
// Draws the bars below each other, on one scale. The sum of its parts is written to the right of each bar, in red if it is
// above the limit. Each part shows its name and value when pointed at, and a legend names the colours and the mark. A part
// whose name is a category (core/colours.h) has that colour.
std::string stacked_bars(const std::vector<Bar>& bars, const BarOptions& options);

struct HeatMap {
  std::vector<std::string> rows, columns;                  // names; empty names of columns are not shown
  std::vector<std::vector<std::optional<double>>> values;  // [row][column]; none: an empty field
  std::string unit_name;
  bool writes_values = true;  // into the fields; otherwise the peak of each row next to it, and a legend
  bool marks_least = false;   // a frame around the smallest value
};
// Draws larger values darker. Fields are as wide as what is written into them.
std::string heat_map(const HeatMap& map);

// Draws a table with the first row as its header.
std::string table(const std::vector<std::vector<std::string>>& rows);
// Returns the same with all columns but the first aligned to the right.
std::string table_of_figures(const std::vector<std::vector<std::string>>& rows);
// Returns the same with names of runs, which may be long, in the first column.
std::string table_of_runs(const std::vector<std::vector<std::string>>& rows);

}  // namespace trivet::report
