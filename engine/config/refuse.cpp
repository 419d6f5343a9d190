#include "engine/config/refuse.h"

#include <fmt/format.h>

#include "engine/config/key_table.h"
#include "engine/config/mistakes.h"

namespace trivet::config {

const GivenKey* find_given(const Config& config, const std::string& path) {
  for (const GivenKey& given : config.given)
    if (given.path == path) return &given;
  return nullptr;
}

const GivenKey* find_given_or_alias(const Config& config, const std::string& path) {
  if (const GivenKey* given = find_given(config, path)) return given;
  for (const KeyEntry& entry : key_table().entries())
    if (entry.alias_of == path && find_given(config, entry.path)) return find_given(config, entry.path);
  return nullptr;
}

std::string source_of(const Config& config, const std::string& path) {
  const GivenKey* const given = find_given_or_alias(config, path);
  return given && given->line == 0 ? "--set" : config.source;
}

void refuse(const Config& config, const std::string& path, const std::string& what) {
  if (const GivenKey* given = find_given_or_alias(config, path)) {
    const Position at{.line = given->line, .column = given->column};
    throw Contradiction(at, fmt::format("{}: {}: {}", location(config.source, at), given->path, what));
  }
  throw Contradiction(kNowhere, fmt::format("{}: {}: {}", config.source.empty() ? "config" : config.source, path, what));
}

}  // namespace trivet::config
