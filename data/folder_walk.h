// The files in a folder and in its folders, in the order of their paths. Hidden files and folders (names that begin with ".",
// such as .git and .ipynb_checkpoints) are left out. Links are followed, but nothing is listed twice: of a file that several
// paths lead to, the one without links is listed, or the first; so a link to a folder above it does not go round in circles.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trivet::data {

// Tells files and folders apart by what they are, not by their names, of which links make several.
class MetFiles {
 public:
  // Checks whether the file or folder was not met before. One that cannot be examined is not new.
  bool is_new(const std::string& path);

 private:
  std::set<std::pair<uint64_t, uint64_t>> met_;  // devices and inodes
};

struct FoundFile {
  std::string path;
  int64_t bytes = 0;
};

struct FolderWalk {
  std::vector<FoundFile> files;       // regular ones
  std::vector<std::string> repeated;  // links to what is listed under another path
  std::vector<std::string> broken;    // links that lead nowhere
  std::vector<std::string> special;   // pipes, devices and sockets
  int64_t hidden = 0;                 // entries, without those in hidden folders
};

// Throws DataError for a folder that cannot be read.
FolderWalk walk_folder(const std::string& folder);

}  // namespace trivet::data
