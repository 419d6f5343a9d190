#include "core/output_guard.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/error.h"
#include "core/named_files.h"
#include "core/printable.h"

namespace trivet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBeginning = 4096;
constexpr size_t kMostFiles = 100'000;  // in input folders, hard links to at most so many files are noticed
constexpr int kLongestChainOfLinks = 40;

std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return status;
}

// Where a write to `path` would go: links are followed, also one that leads to a file that is not there yet.
fs::path resolved(const std::string& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);  // otherwise a file that is not there would have no folder
  if (error) return path;
  for (int links = 0; links < kLongestChainOfLinks && fs::is_symlink(at, error); ++links) {
    const fs::path to = fs::read_symlink(at, error);
    if (error) break;
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  const fs::path whole = fs::weakly_canonical(at, error);
  const fs::path chosen = error ? at.lexically_normal() : whole;
  return chosen.has_filename() ? chosen : chosen.parent_path();  // "folder/" is "folder"
}

std::string beginning_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read: {}", printable(path), std::strerror(errno)));
  std::string text(kBeginning, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string_view special_kind(mode_t mode) {
  if (S_ISFIFO(mode)) return "FIFO";
  if (S_ISSOCK(mode)) return "socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "device" : "special file";
}

bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

// A name that fits.
std::string example_of(const std::string& pattern) {
  const size_t star = pattern.find('*');
  return star == std::string::npos ? pattern : pattern.substr(0, star) + "x" + pattern.substr(star + 1);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path())
    if (at == folder) return true;
  return false;
}

[[noreturn]] void refuse_output(const std::string& key, const std::string& path, const std::string& what) {
  throw ConfigError(fmt::format("{}: {} {}", key, printable(path), what));
}

void refuse_no_folder(const std::string& folder, const std::string& key) {
  const auto own = status_of(folder);
  if (own && !S_ISDIR(own->st_mode)) refuse_output(key, folder, "is there, but is no folder; name a folder");
}

}  // namespace

bool is_own_page(std::string_view beginning) { return beginning.substr(0, 1024).find(kOwnPage) != std::string_view::npos; }

OutputGuard::OutputGuard(Force force) : force_(force) {
  const auto files_in = [](const char* variable) {
    const char* const list = std::getenv(variable);
    return list ? named_files(list) : std::vector<NamedFile>();
  };
  for (const NamedFile& file : files_in(kLauncherInputs)) reads(file.path, file.name + " of trivet launch");
  for (const NamedFile& file : files_in(kLauncherOutputs)) {
    writes(file.path, file.name + " of trivet launch", "launch");
    of_launcher_.push_back(file);
  }
}

void OutputGuard::reads(const std::string& path, const std::string& name) {
  const auto status = path.empty() ? std::nullopt : status_of(path);
  if (!status) return;
  if (S_ISDIR(status->st_mode)) named_folders_.emplace(Identity{status->st_dev, status->st_ino}, name);
  if (S_ISDIR(status->st_mode)) return reads_tree(path, name, false);
  files_.emplace(Identity{status->st_dev, status->st_ino}, name);
  inputs_.emplace_back(path, name);
}

void OutputGuard::reads_data(const std::string& path, const std::string& name) {
  const auto status = path.empty() ? std::nullopt : status_of(path);
  if (!status || !S_ISDIR(status->st_mode)) return reads(path, name);
  reads_tree(path, name, true);
  for (const NamedFile& file : of_launcher_) refuse_data(file.path, file.name + " of trivet launch");
}

// Links to folders are followed once, as the walk over data follows them.
void OutputGuard::reads_tree(const std::string& folder, const std::string& name, bool is_data) {
  std::vector<fs::path> open{folder};
  std::map<Identity, std::string> seen;
  size_t regular = 0;
  while (!open.empty()) {
    const fs::path at = std::move(open.back());
    open.pop_back();
    const auto own = status_of(at);
    if (!own || !seen.emplace(Identity{own->st_dev, own->st_ino}, name).second) continue;
    std::error_code unreadable;  // reported when the data are read
    for (const fs::directory_entry& entry : fs::directory_iterator(at, unreadable)) {
      std::error_code ignored;
      if (entry.is_regular_file(ignored) && !entry.is_symlink(ignored) && ++regular > kMostFiles) continue;
      const auto status = status_of(entry.path());
      if (!status) continue;
      if (S_ISDIR(status->st_mode)) {
        open.push_back(entry.path());
      } else {
        files_.emplace(Identity{status->st_dev, status->st_ino}, name);
        inputs_.emplace_back(entry.path().string(), name);
      }
    }
  }
  if (is_data) data_folders_.merge(seen);
}

void OutputGuard::reads_matching(const std::string& folder, std::function<bool(std::string_view)> matches,
                                 const std::string& name) {
  const auto status = status_of(folder.empty() ? "." : folder);
  if (!status || !S_ISDIR(status->st_mode)) return;
  patterns_.push_back({{status->st_dev, status->st_ino}, std::move(matches), name});
  const auto& is_data = patterns_.back().matches;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, unreadable))
    if (is_data(entry.path().filename().string())) reads(entry.path().string(), name);
  for (const NamedFile& file : of_launcher_) refuse_data(file.path, file.name + " of trivet launch");
}

void OutputGuard::refuse_input(const std::string& path, const Output& output) const {
  const auto status = status_of(path);
  if (!status) return;
  if (const auto input = files_.find({status->st_dev, status->st_ino}); input != files_.end())
    refuse_output(
        output.key, path,
        fmt::format("is the same file as an input ({}), which would be overwritten; name another file", input->second));
}

void OutputGuard::refuse_data(const std::string& path, const std::string& key) const {
  const fs::path target = resolved(path);
  for (fs::path at = target; at.has_relative_path(); at = at.parent_path()) {
    const auto status = status_of(at);
    if (!status) continue;
    if (const auto folder = data_folders_.find({status->st_dev, status->st_ino}); folder != data_folders_.end())
      refuse_output(key, path,
                    fmt::format("lies in a folder whose files are read ({}), and would be read with them the next time; name "
                                "a place outside of it",
                                folder->second));
  }
  const auto parent = status_of(target.parent_path());
  for (const Pattern& pattern : patterns_)
    if (parent && pattern.folder == Identity{parent->st_dev, parent->st_ino} && pattern.matches(target.filename().string()))
      refuse_output(
          key, path,
          fmt::format("has a name that {} matches, and would be read as data the next time; use another name", pattern.name));
}

void OutputGuard::refuse_foreign(const Output& output) const {
  const auto status = status_of(output.path);
  if (!status) return;
  if (S_ISDIR(status->st_mode)) refuse_output(output.key, output.path, "is a folder; name a file");
  if (!S_ISREG(status->st_mode)) {
    if (output.in_place && !S_ISSOCK(status->st_mode) && !S_ISBLK(status->st_mode)) return;
    refuse_output(output.key, output.path, fmt::format("is a {}; name a file", special_kind(status->st_mode)));
  }
  if (force_ == Force::Yes || status->st_size == 0) return;
  if (output.is_own && output.is_own(beginning_of(output.path))) return;
  refuse_output(output.key, output.path,
                fmt::format("exists, and is not {}; {}", output.what,
                            force_ == Force::No ? "name another file, or replace this one with --force"
                                                : "name another file, or remove this one"));
}

// Compares with all outputs that were checked before. A pattern stands for one of its names.
void OutputGuard::refuse_other_output(const Place& place, const std::string& path) const {
  const fs::path whole = place.folder / (place.is_pattern ? example_of(place.name) : place.name);
  const auto is_of = [](const Place& other, const fs::path& file) {
    for (fs::path at = file; at.has_relative_path(); at = at.parent_path()) {
      const std::string name = at.filename().string();
      if (at.parent_path() == other.folder && (other.is_pattern ? fits(other.name, name) : other.name == name)) return true;
    }
    return false;
  };
  for (const Place& other : places_) {
    if (other.group == place.group) continue;
    const fs::path of_other = other.folder / (other.is_pattern ? example_of(other.name) : other.name);
    if (!is_of(other, whole) && !is_of(place, of_other) && (place.is_pattern || !lies_in(other.folder, whole))) continue;
    refuse_output(place.key, path, fmt::format("is also written by {}; name another place for one of them", other.key));
  }
}

void OutputGuard::note(const Place& place, const std::string& path) {
  refuse_other_output(place, path);
  places_.push_back(place);
}

// Devices and FIFOs may get several outputs.
void OutputGuard::writes(const std::string& path, const std::string& key, const std::string& group) {
  const auto status = status_of(path);
  if (status && !S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) return;
  const fs::path whole = resolved(path);
  note({whole.parent_path(), whole.filename().string(), false, key, group}, path);
  if (!status) return;
  const auto [other, is_new] = written_.emplace(Identity{status->st_dev, status->st_ino}, key);
  if (!is_new && other->second != key)
    refuse_output(key, path, fmt::format("is also written by {}; name another place for one of them", other->second));
}

void OutputGuard::check(const Output& output) {
  check_not_input(output);
  refuse_foreign(output);
}

void OutputGuard::check_not_input(const Output& output) {
  for (const char* ending : {"", ".tmp"}) refuse_input(output.path + ending, output);  // some are written under that name
  refuse_data(output.path, output.key);
  if (!output.path.starts_with("/dev/std") && !output.path.starts_with("/dev/fd/"))  // may be a log of the launcher
    writes(output.path, output.key, output.group.empty() ? output.key : output.group);
}

void OutputGuard::add_names(const std::string& folder, const std::vector<std::string>& names, const std::string& key,
                            const std::string& group) {
  const std::string named = folder.empty() ? "." : folder;
  refuse_data(named, key);
  const fs::path whole = resolved(named);
  for (const std::string& name : names) {
    const std::string example = (fs::path(folder) / example_of(name)).string();
    refuse_data(example, key);
    note({whole, name, true, key, group}, example);
  }
}

void OutputGuard::check_names_in(const std::string& folder, const std::vector<std::string>& names, const std::string& key) {
  refuse_no_folder(folder, key);
  add_names(folder, names, key, key);
}

void OutputGuard::check_files_in(const std::string& folder, const std::vector<std::string>& names, const Output& file) {
  refuse_no_folder(folder, file.key);
  add_names(folder, names, file.key, file.group.empty() ? file.key : file.group);
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename().string();
    for (const std::string& written : names) {
      if (!fits(written, name) && !fits(written + ".tmp", name)) continue;
      Output one = file;
      one.path = entry.path().string();
      refuse_input(one.path, one);
      if (fits(written, name)) refuse_foreign(one);
    }
  }
}

void OutputGuard::check_folder(const std::string& folder, const std::string& key) const {
  refuse_no_folder(folder, key);
  refuse_data(folder + "/.", key);
  const auto own = status_of(folder);
  if (!own) return;
  for (const auto& [path, name] : inputs_)
    if (const auto in = status_of(resolved(path).parent_path()); in && in->st_dev == own->st_dev && in->st_ino == own->st_ino)
      refuse_output(key, folder, fmt::format("holds an input ({}: {}); name another folder", name, printable(path)));
}

void OutputGuard::check_not_input_folder(const std::string& folder, const std::string& key) const {
  const auto own = status_of(folder);
  if (!own) return;
  if (const auto input = named_folders_.find({own->st_dev, own->st_ino}); input != named_folders_.end())
    refuse_output(key, folder, fmt::format("is the folder of an input ({}); name another folder", input->second));
}

}  // namespace trivet
