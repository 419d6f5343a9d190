#include "engine/config/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::config {

std::string location(const std::string& source, Position at) {
  return at.line == 0 ? "--set" : fmt::format("{}:{}:{}", source, at.line, at.column);
}

void Report::add(Position at, const std::string& path, const std::string& what) {
  ++found_;
  if (full()) return;
  const std::string key = path.empty() ? "" : printable(path) + ": ";
  mistakes_.emplace_back(at, fmt::format("{}: {}{}", location(source_, at), key, what));
}

void Report::throw_if_any() {
  if (mistakes_.empty()) return;
  const auto order = [](const auto& mistake) { return std::tuple(mistake.first.line, mistake.first.column); };
  std::stable_sort(mistakes_.begin(), mistakes_.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  std::string text;
  for (const auto& [at, line] : mistakes_) text += (text.empty() ? "" : "\n") + line;
  if (found_ > mistakes_.size()) text += fmt::format("\nand {} more mistakes", found_ - mistakes_.size());
  throw ConfigError(text);
}

}  // namespace trivet::config
