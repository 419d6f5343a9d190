// Facts that Linux gives about this host in text files.
#pragma once

#include <string>

namespace trivet::autotune {

// The text after the colon of the first line that begins with `key`; without a key, the file's first line. Empty if there is no
// such line.
std::string line_of(const std::string& path, const std::string& key = "");
// Returns the processor's name, for example "AMD EPYC". `root` is put before /proc, for tests.
std::string processor_name(const std::string& root = "");

}  // namespace trivet::autotune
