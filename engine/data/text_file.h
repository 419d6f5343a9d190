// Whole files in and out of memory.
#pragma once

#include <string>
#include <string_view>

namespace trivet::data {

// The file's content, unpacked when it is gzip. Throws DataError: missing, a directory, unreadable, damaged, empty.
std::string read_text(const std::string& path);
// Through a temporary file in the same directory and a rename, so that there is the old file or the new one, never half of one.
void write_file(const std::string& path, std::string_view content);

}  // namespace trivet::data
