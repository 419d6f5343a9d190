// A file that a monitor appends to. Every write reaches the operating system before it returns, so a killed run leaves a record
// of everything that it did.
//
// Nothing waits for the reader of a FIFO: a FIFO that nobody reads cannot be opened, and one whose reader has left, or does not
// keep up, is given up.
//
// A file that cannot be opened when the run starts ends the run, because its user wants it. Later, when a disk is full or a
// folder has gone, training is worth more: the log says so once, nothing more is written to this file, and the run continues.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace trivet::monitor {

class OutputFile {
 public:
  // Creates the folders above the file, and opens the file for appending. Throws Error (Usage) if it cannot.
  explicit OutputFile(const std::string& path);
  // Opens a file in the middle of a run: does not throw.
  static OutputFile opened_late(const std::string& path);
  // Opens a file that one run has for itself, because it cuts off what it will write again. A process that is dying has `wait`
  // to let go of the file. Throws Error (Usage) that says what to do if another process still writes to it.
  static OutputFile of_this_run(const std::string& path, std::chrono::milliseconds wait);
  bool write(std::string_view text);  // returns whether all of it was written

 private:
  OutputFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  void give_up();

  std::string path_;
  Descriptor file_;  // empty: it cannot be written any more
};

// Cuts off what comes after the last complete line: a killed run or a full disk may have left half a line, to which the next
// line would be appended. No error if there is no such file.
void cut_incomplete_line(const std::string& path);

}  // namespace trivet::monitor
