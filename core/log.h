// Log lines for people, on stderr: "trivet: rank 1: ...". Metrics do not go through here but through report/monitor. Text from
// outside (host names, tags, file names) is escaped, so that it cannot forge lines.
#pragma once

#include <string>
#include <string_view>

namespace trivet {

enum class LogLevel { Info, Warning, Error };

class Log {
 public:
  Log() = default;
  explicit Log(int world_rank, LogLevel least = LogLevel::Info) : world_rank_(world_rank), least_(least) {}
  void info(std::string_view text) const { write(LogLevel::Info, text); }
  void warning(std::string_view text) const { write(LogLevel::Warning, text); }
  void error(std::string_view text) const { write(LogLevel::Error, text); }

 private:
  void write(LogLevel level, std::string_view text) const;
  int world_rank_ = 0;
  LogLevel least_ = LogLevel::Info;
};

// printable() (core/printable.h) for text that is a whole message: up to 4096 characters.
std::string escape_control(std::string_view text);

}  // namespace trivet
