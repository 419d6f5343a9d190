#include "engine/data/file_pattern.h"

#include <algorithm>
#include <filesystem>

#include "engine/data/data_error.h"

namespace trivet::data {

namespace fs = std::filesystem;

bool matches(std::string_view pattern, std::string_view name) {
  // After a difference, the last "*" takes one more character.
  size_t star = std::string_view::npos, after_star = 0, place = 0, at = 0;
  while (at < name.size()) {
    if (place < pattern.size() && pattern[place] == '*') {
      star = place++;
      after_star = at;
    } else if (place < pattern.size() && pattern[place] == name[at]) {
      ++place, ++at;
    } else if (star != std::string_view::npos) {
      place = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', place) == std::string_view::npos;
}

std::vector<std::string> matching_files(const std::string& path) {
  const fs::path whole(path);
  const std::string pattern = whole.filename().string();
  std::error_code error;
  if (pattern.find('*') == std::string::npos || fs::exists(whole, error)) return {path};
  const fs::path folder = whole.parent_path();
  std::vector<std::string> found;
  fs::directory_iterator entries(folder.empty() ? "." : folder, error);
  if (error) bad_file(path, "the folder " + folder.string() + " cannot be read: " + error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (matches(pattern, name) && !entries->is_directory(error)) found.push_back((folder / name).string());
    if (error) break;
  }
  if (found.empty()) bad_file(path, "no file matches");
  std::ranges::sort(found);
  return found;
}

}  // namespace trivet::data
