// The mesh as a table that fits on a page.
#include <fmt/format.h>

#include <algorithm>

#include "engine/mesh.h"

namespace trivet {
namespace {

constexpr int kShownInFull = 64;  // ranks
constexpr int kShownOfLong = 2;   // at the beginning of what is shortened; then come ".." and the last one
constexpr size_t kLineLength = 120;
const std::string kLeftOut = "..";

// Positions 0 to count - 1; if shortened, the first ones, -1 and the last one.
std::vector<int> shown(int count, bool shorten) {
  std::vector<int> positions;
  for (int i = 0; i < count; ++i) positions.push_back(i);
  if (shorten && count > kShownOfLong + 2)
    positions.erase(positions.begin() + kShownOfLong, positions.end() - 2), positions[kShownOfLong] = -1;
  return positions;
}

struct Table {
  std::vector<std::string> row_names;
  std::vector<std::string> column_names;
  std::vector<std::vector<std::string>> cells;  // by row and column
};

std::string cell(const Mesh& mesh, int pipeline, int data, bool shorten) {
  const std::vector<int> ranks = mesh.ranks_at({{Axis::Pipeline, pipeline}, {Axis::Data, data}});
  const size_t digits = std::to_string(mesh.size() - 1).size();
  std::string text;
  for (const int i : shown(static_cast<int>(ranks.size()), shorten))
    text += fmt::format("{}{:>{}}", text.empty() ? "" : " ", i < 0 ? kLeftOut : std::to_string(ranks[i]), digits);
  return text;
}

Table make_table(const Mesh& mesh, std::span<const std::string> rows) {
  const bool shorten = mesh.size() > kShownInFull;
  const std::vector<int> columns = shown(mesh.size(Axis::Data), shorten);
  Table table;
  for (const int data : columns) table.column_names.push_back(data < 0 ? kLeftOut : std::to_string(data));
  for (const int pipeline : shown(mesh.size(Axis::Pipeline), shorten)) {
    const auto row = static_cast<size_t>(pipeline);
    table.row_names.push_back(pipeline < 0 ? kLeftOut : row < rows.size() ? rows[row] : fmt::format("stage {}", pipeline));
    std::vector<std::string>& cells = table.cells.emplace_back();
    for (const int data : columns) cells.push_back(pipeline < 0 || data < 0 ? kLeftOut : cell(mesh, pipeline, data, shorten));
  }
  return table;
}

size_t widest(const std::vector<std::string>& texts) {
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  return width;
}

std::string line(const std::string& name, size_t name_width, std::span<const std::string> cells, size_t width) {
  std::string text = fmt::format("{:<{}}", name, name_width);
  for (const std::string& cell : cells) text += fmt::format(" | {:^{}}", cell, width);
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::string to_grid(const Mesh& mesh, std::span<const std::string> rows) {
  const Table table = make_table(mesh, rows);
  const size_t name_width = std::max(widest(table.row_names), widest({"data"}));
  size_t width = widest(table.column_names);
  for (const std::vector<std::string>& cells : table.cells) width = std::max(width, widest(cells));
  // Columns that do not fit on a line go into another band below.
  const size_t columns = table.column_names.size();
  const size_t fit = std::max<size_t>(1, (kLineLength - std::min(kLineLength, name_width)) / (width + 3));
  std::string text;
  for (size_t begin = 0; begin < columns; begin += fit) {
    const size_t count = std::min(fit, columns - begin);
    text += line("data", name_width, std::span(table.column_names).subspan(begin, count), width);
    for (size_t row = 0; row < table.cells.size(); ++row)
      text += line(table.row_names[row], name_width, std::span(table.cells[row]).subspan(begin, count), width);
  }
  return text;
}

}  // namespace trivet
