// One axis of a chart: the values that it covers, the numbers written at it, and where on it a value is.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace trivet::report {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void add(double value);
  double length() const { return high - low; }
};

struct Tick {
  double value = 0;
  std::string text;  // "2.5", "1,000", "1.5M"
};

struct ChartAxis {
  Range range;
  std::vector<Tick> ticks;
  bool logarithmic = false;

  double share(double value) const;  // 0 where the axis begins, 1 where it ends
};

// Axes of values begin and end at a tick.
ChartAxis axis_of_values(Range values, bool from_zero);
// All values are above 0. If they differ by less than a factor of 3, the ticks are those of the other axis.
ChartAxis logarithmic_axis_of_values(Range values);
// Begins and ends where the steps do.
ChartAxis axis_of_steps(Range steps);

}  // namespace trivet::report
