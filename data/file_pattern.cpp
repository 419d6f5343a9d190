#include "data/file_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/output_guard.h"
#include "core/printable.h"
#include "data/data_error.h"
#include "data/names_of_files.h"

namespace trivet::data {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_star_in_folder(const std::string& path) {
  bad_file(path, "a \"*\" stands for characters only after the last \"/\"; name the folder, or each of them");
}

}  // namespace

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

bool is_pattern(const std::string& path) {
  std::error_code none;
  return fs::path(path).filename().string().find('*') != std::string::npos && !fs::exists(path, none);
}

void name_inputs(OutputGuard& guard, const std::string& path, const std::string& key) {
  if (!is_pattern(path)) return guard.reads_data(path, key);
  const fs::path whole(path);
  guard.reads_matching(
      whole.parent_path().string(),
      [pattern = whole.filename().string()](std::string_view name) { return matches(pattern, name); }, key);
}

bool is_absent(const std::string& path) {
  const fs::path whole(path);
  std::error_code error;
  if (fs::exists(whole, error)) return false;
  if (whole.filename().string().find('*') == std::string::npos) return true;
  const fs::path folder = whole.parent_path();
  return !fs::exists(folder.empty() ? "." : folder, error);
}

MatchingFiles matching_files(const std::string& path) {
  const fs::path whole(path);
  const std::string pattern = whole.filename().string();
  std::error_code error;
  const fs::path folder = whole.parent_path();
  const bool has_star_in_folder = folder.string().find('*') != std::string::npos && !fs::exists(folder, error);
  if (has_star_in_folder) refuse_star_in_folder(path);
  if (!is_pattern(path)) return {{path}};
  std::vector<std::string> found, left_out;
  fs::directory_iterator entries(folder.empty() ? "." : folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code none;
    const bool is_left_out = (name.starts_with(".") && !pattern.starts_with(".")) || entries->is_directory(none) ||
                             is_log_of_rank(name) || (entries->is_regular_file(none) && entries->file_size(none) == 0);
    if (matches(pattern, name)) (is_left_out ? left_out : found).push_back((folder / name).string());
  }
  if (error) bad_file(path, "the folder " + folder.string() + " cannot be read: " + error.message());
  std::ranges::sort(found);
  std::ranges::sort(left_out);
  const std::string names = printable(fmt::format("{}", fmt::join(left_out, ", ")));
  const std::string rest =
      left_out.empty() ? "" : "leaves out folders, hidden and empty files, and what ranks printed: " + names;
  if (found.empty()) bad_file(path, "no file matches" + (rest.empty() ? "" : "; a pattern " + rest));
  return {std::move(found), rest.empty() ? "" : path + ": " + rest};
}

}  // namespace trivet::data
