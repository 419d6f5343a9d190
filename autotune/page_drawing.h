// Pictures for a page: text that a browser draws, in the colours of the page's style sheet (light and dark).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/prediction.h"

namespace trivet::autotune {

// For text and attributes of HTML and SVG.
std::string escaped(const std::string& text);

// The colours c0, c1 ... of parts, text, and a page that is as wide as it is useful.
std::string page_style();

struct Bar {
  std::string label;
  std::vector<Part> parts;
};
struct BarOptions {
  double limit = 0;  // drawn as a line; 0: none
  std::string limit_name;
  double unit = 1;        // what a value of 1 in the text is
  std::string unit_name;  // "GiB"
};
// One bar below the other, on one scale; each part says its name and value when pointed at. A legend names the colours.
std::string stacked_bars(const std::vector<Bar>& bars, const BarOptions& options);

struct HeatMap {
  std::vector<std::string> rows, columns;                  // names; columns are shown where they are not empty
  std::vector<std::vector<std::optional<double>>> values;  // [row][column]; none: an empty field
  std::string unit_name;
  bool writes_values = true;  // into the fields
};
// The larger the darker.
std::string heat_map(const HeatMap& map);

// With the first row as head.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace trivet::autotune
