#include "data/folder_walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "data/data_error.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

class FolderWalker {
 public:
  FolderWalk run(const std::string& folder) {
    is_new(folder);
    add_folder(folder);
    // Files that no link leads to come first, so that a link to one is left out instead.
    for (size_t next = 0; next < links_.size(); ++next) {
      if (next == sorted_) sort_rest();
      add_link(std::string(links_[next]));
    }
    const auto path_of = [](const FoundFile& file) -> const std::string& { return file.path; };
    std::ranges::sort(walk_.files, {}, path_of);
    return std::move(walk_);
  }

 private:
  // The links of one level of folders are followed in order, whatever the order of the file system.
  void sort_rest() {
    std::sort(links_.begin() + static_cast<std::ptrdiff_t>(sorted_), links_.end());
    sorted_ = links_.size();
  }

  bool is_new(const std::string& path) { return met_.is_new(path); }

  void add_folder(const std::string& first) {
    std::vector<std::string> folders{first};
    while (!folders.empty()) {
      const std::string folder = folders.back();
      folders.pop_back();
      std::error_code error;
      for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
        add_entry(*entry, folders);
      if (error) bad_file(folder, "cannot be read: " + error.message());
    }
  }

  void add_entry(const fs::directory_entry& entry, std::vector<std::string>& folders) {
    const std::string path = entry.path().string();
    std::error_code none;
    if (entry.path().filename().string().starts_with("."))
      ++walk_.hidden;
    else if (entry.is_symlink(none))
      links_.push_back(path);
    else if (!entry.is_directory(none))
      add_file(path);
    else if (is_new(path))
      folders.push_back(path);
  }

  void add_file(const std::string& path) {
    std::error_code none;
    is_new(path);
    if (fs::is_regular_file(path, none))
      walk_.files.push_back({path, static_cast<int64_t>(fs::file_size(path, none))});
    else
      walk_.special.push_back(path);
  }

  void add_link(const std::string& path) {
    std::error_code none;
    const fs::file_status status = fs::status(path, none);
    if (!fs::exists(status))
      walk_.broken.push_back(path);
    else if (!is_new(path))
      walk_.repeated.push_back(path);
    else if (fs::is_directory(status))
      add_folder(path);
    else
      add_file(path);
  }

  FolderWalk walk_;
  MetFiles met_;
  std::vector<std::string> links_;
  size_t sorted_ = 0;  // number of links whose order is final
};

}  // namespace

bool MetFiles::is_new(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && met_.emplace(status.st_dev, status.st_ino).second;
}

FolderWalk walk_folder(const std::string& folder) { return FolderWalker().run(folder); }

}  // namespace trivet::data
