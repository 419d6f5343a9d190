// A file that a monitor appends to: every write reaches the system before it returns, so that a killed run has told all it did.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace trivet::monitor {

class OutputFile {
 public:
  // Makes the folders above it. Opens at the end of what is there.
  explicit OutputFile(const std::string& path);
  void write(std::string_view text);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace trivet::monitor
