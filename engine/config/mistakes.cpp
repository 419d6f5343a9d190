#include "engine/config/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/printable.h"

namespace trivet::config {
namespace {

bool is_before(Position a, Position b) { return std::tie(a.line, a.column) < std::tie(b.line, b.column); }

}  // namespace

std::string location(const std::string& source, Position at) {
  if (at.line == kOfWeights.line) return source;
  return at.line == 0 ? "--set" : fmt::format("{}:{}:{}", source, at.line, at.column);
}

bool Mistakes::shows(Position at) const { return mistakes_.size() < kMaxShown || is_before(at, mistakes_.back().first); }

void Mistakes::add(Position at, const std::string& path, const std::string& what) {
  ++found_;
  if (!shows(at)) return;
  const std::string key = path.empty() ? "" : printable(path) + ": ";
  insert(at, fmt::format("{}: {}{}", location(source_, at), key, what));
}

void Mistakes::add(Position at, const std::string& line) {
  ++found_;
  if (shows(at)) insert(at, line);
}

void Mistakes::insert(Position at, const std::string& line) {
  const auto next = std::upper_bound(mistakes_.begin(), mistakes_.end(), at,
                                     [](Position place, const auto& mistake) { return is_before(place, mistake.first); });
  mistakes_.emplace(next, at, line);
  if (mistakes_.size() > kMaxShown) mistakes_.pop_back();
}

void Mistakes::throw_if_any() {
  if (mistakes_.empty()) return;
  std::string text;
  for (const auto& [at, line] : mistakes_) text += (text.empty() ? "" : "\n") + line;
  if (found_ > mistakes_.size()) text += fmt::format("\nand {} more mistakes", found_ - mistakes_.size());
  throw ConfigError(text);
}

}  // namespace trivet::config
