// A drawing of numbers over steps, as SVG in the colours of the page's style sheet. It has a text alternative, and a table of
// some of its figures goes with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trivet::report {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (step, value), steps ascending; values that are not finite are left out
  int color = 0;                                  // of the style sheet, modulo their number
  bool dots = false;                              // a dashed line with a dot at each point, for values that are rare
};

struct Mark {
  double step = 0;
  std::string name;  // shown when pointed at
};

struct LineChart {
  std::string title;  // with the unit: "Throughput, tokens/s"
  std::vector<Line> lines;
  std::vector<Mark> marks;  // along the axis of steps
  bool from_zero = false;   // the axis of values begins at 0
};

// Whether there is nothing to draw.
bool is_empty(const LineChart& chart);
// Where more points than pixels are drawn, a line shows their mean and a band their range. An empty chart is an empty text.
std::string to_svg(const LineChart& chart);
// "loss: 4.289 at step 1, 1.472 at step 1000; from 1.472 to 4.289"
std::string in_words(const LineChart& chart);
// At most `rows` steps, evenly spread, as rows of page_drawing's table().
std::vector<std::vector<std::string>> figures_of(const LineChart& chart, size_t rows = 12);

}  // namespace trivet::report
