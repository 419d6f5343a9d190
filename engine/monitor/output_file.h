// A file that a monitor appends to. Every write reaches the operating system before it returns, so a killed run leaves a record
// of everything that it did.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace trivet::monitor {

class OutputFile {
 public:
  // Creates the folders above the file, and opens the file for appending.
  explicit OutputFile(const std::string& path);
  void write(std::string_view text);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace trivet::monitor
