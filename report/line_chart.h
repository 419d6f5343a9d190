// A drawing of numbers over steps, or over something else that is counted, as SVG in the colours of the page's style sheet. It
// has a text alternative, and a table of some of its figures goes with it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trivet::report {

inline constexpr double kMostDrawn = 1e300;  // larger values are left out, because their differences are not finite

enum class LineStyle : uint8_t {
  Solid,
  Pale,    // the values that another line averages; neither the words nor the table have it
  Dashed,  // with a dot at each point, for values that are rare
  Dots,    // without a line between them
};

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (step, value), steps ascending; values that are not finite are left out
  int color = 0;                                  // number in the style sheet, modulo their number
  LineStyle style = LineStyle::Solid;
};

struct Mark {
  double step = 0;
  std::string name;  // shown when pointed at
};

struct LineChart {
  std::string title;            // with the unit: "Throughput, tokens/s"
  std::string counts = "step";  // the unit of the axis
  std::vector<Line> lines;
  std::vector<Mark> marks;   // along the axis of steps
  bool from_zero = false;    // the axis of values begins at 0
  bool logarithmic = false;  // the axis of values, which are all above 0
  std::string note = {};     // a note about all lines; part of the words
};

// Checks whether there is nothing to draw.
bool is_empty(const LineChart& chart);
// Where more points than pixels are drawn, a line shows their mean and a band their range. A line that ends before others has a
// dot at its end. An empty chart is an empty text.
std::string to_svg(const LineChart& chart);
// "loss: 4.289 at step 1, 1.472 at step 1000; from 1.472 to 4.289"
std::string in_words(const LineChart& chart);
// Returns at most `rows` steps, evenly spread, as rows of page_drawing's table().
std::vector<std::vector<std::string>> figures_of(const LineChart& chart, size_t rows = 12);
// A figure with the drawing, its legend and its table. `id`: of the table, unique in the page.
std::string figure(const LineChart& chart, const std::string& id);

}  // namespace trivet::report
