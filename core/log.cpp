#include "core/log.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/printable.h"

namespace trivet {

std::string escape_control(std::string_view text) { return printable(text, 4096); }

void Log::write(LogLevel level, std::string_view text) const {
  if (level < least_) return;
  const char* mark = level == LogLevel::Warning ? "warning: " : level == LogLevel::Error ? "error: " : "";
  const std::string line = fmt::format("trivet: rank {}: {}{}\n", world_rank_, mark, printable_lines(text));
  // `stderr` has no buffer: one write per line, so that lines of several ranks do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace trivet
