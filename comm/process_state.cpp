#include "comm/process_state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

#include "core/descriptor.h"

namespace trivet::comm {
namespace {

// "PID (NAME) STATE PPID ...": the name may contain spaces and parentheses, so it ends at the last parenthesis. The start time
// is the 22nd field, the 20th after the name.
constexpr int kStartField = 20;

}  // namespace

std::optional<ProcessState> parse_process_state(std::string_view stat) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || stat.size() < name_end + 3) return std::nullopt;
  std::string_view rest = stat.substr(name_end + 2);
  ProcessState found;
  found.state = rest[0];
  for (int field = 1; field < kStartField; ++field) {
    const size_t blank = rest.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(blank + 1);
  }
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), found.started);
  if (error != std::errc()) return std::nullopt;
  return found;
}

std::optional<ProcessState> state_of_process(int64_t pid) {
  const Descriptor file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const ssize_t size = ::read(file.number(), text, sizeof text);
  if (size <= 0) return std::nullopt;
  return parse_process_state({text, static_cast<size_t>(size)});
}

bool is_stopped(int64_t pid, int64_t started) {
  const auto found = state_of_process(pid);
  return found && found->state == 'T' && found->started == started;
}

}  // namespace trivet::comm
