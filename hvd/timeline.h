// HOROVOD_TIMELINE: a file in the format of Chrome's tracing (chrome://tracing, https://ui.perfetto.dev) with a row for each
// tensor:
//
//   NEGOTIATE_ALLREDUCE         from the first rank's submission to the last one's; a mark says when each rank's became known
//   ALLREDUCE                   the operation; with MEMCPY_IN_FUSION_BUFFER, SUM and MEMCPY_OUT_FUSION_BUFFER within it
//
// Times are in microseconds since the file was opened. Each event goes to the file when it happens, so that the file of a run
// that was killed can be opened, too: only the "]" at its end is missing. Thread-safe. While it is closed, calls cost a lock
// and do nothing.
#pragma once

#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "core/enum_names.h"

namespace trivet::hvd {

// The name of an enum's value in capitals: "ALLREDUCE".
template <typename Enum>
std::string activity_of(Enum value) {
  std::string text(name_of(value));
  for (char& letter : text)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return text;
}

class Timeline {
 public:
  ~Timeline();
  // Throws ConfigError if the file cannot be written. An open file is closed first.
  void open(const std::string& path);
  void close();

  void begin(const std::string& tensor, const std::string& activity);
  void end(const std::string& tensor);
  void mark(const std::string& tensor, const std::string& text);

 private:
  void write(const std::string& tensor, char phase, const std::string& name, const char* more);
  int row_of(const std::string& tensor);
  void finish();

  std::mutex mutex_;
  std::ofstream file_;
  std::string path_;
  std::chrono::steady_clock::time_point start_;
  std::map<std::string, int> rows_;
};

// An activity of several tensors, as long as this lives.
template <typename Names>
class TimelineSpan {
 public:
  TimelineSpan(Timeline& timeline, const Names& names, const std::string& activity) : timeline_(timeline), names_(names) {
    for (const std::string& name : names_) timeline_.begin(name, activity);
  }
  ~TimelineSpan() {
    for (const std::string& name : names_) timeline_.end(name);
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

 private:
  Timeline& timeline_;
  const Names& names_;
};

}  // namespace trivet::hvd
