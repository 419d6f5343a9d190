#include "core/log.h"

#include <fmt/format.h>
#include <unistd.h>

namespace trivet {

std::string escape_control(std::string_view text) {
  constexpr size_t kLongest = 4096;
  std::string out;
  for (char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

void Log::write(LogLevel level, std::string_view text) const {
  if (level < least_) return;
  const char* mark = level == LogLevel::Warning ? "warning: " : level == LogLevel::Error ? "error: " : "";
  const std::string line = fmt::format("trivet: rank {}: {}{}\n", world_rank_, mark, text);
  // One write per line, so that lines of several ranks do not mix.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace trivet
