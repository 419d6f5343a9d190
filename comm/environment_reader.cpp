#include "comm/environment_reader.h"

#include <fmt/format.h>

#include <charconv>

#include "core/printable.h"

namespace trivet::comm {

bool EnvironmentReader::has(const std::string& name) const {
  const auto found = variables_.find(name);
  return found != variables_.end() && !found->second.empty();
}

std::string EnvironmentReader::text(const std::string& name) const {
  if (has(name)) return variables_.at(name);
  throw ConfigError(
      fmt::format("{}: is not set, and other variables say that this is one rank of several; set it on all ranks", name));
}

int64_t EnvironmentReader::number(const std::string& name, int64_t least, int64_t most) const {
  const std::string value = text(name);
  int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size() || result < least || result > most) {
    throw ConfigError(fmt::format("{}={}: must be a whole number from {} to {}", name, printable(value), least, most));
  }
  return result;
}

int64_t EnvironmentReader::number_or(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const {
  return has(name) ? number(name, least, most) : otherwise;
}

}  // namespace trivet::comm
