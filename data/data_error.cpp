#include "data/data_error.h"

#include <filesystem>

namespace trivet::data {
namespace {

// Checks whether the name may be an address, or a data set on a hub, such as owner/name.
bool is_elsewhere(const std::string& path) {
  if (path.find("://") != std::string::npos) return true;
  std::error_code none;
  const size_t slash = path.find('/');
  return slash != std::string::npos && slash > 0 && slash == path.rfind('/') && slash + 1 < path.size() &&
         !std::filesystem::path(path).has_extension() && path[0] != '.' &&
         !std::filesystem::exists(path.substr(0, slash), none);
}

}  // namespace

void refuse_missing(const std::string& path) {
  std::error_code none;
  const bool is_prefix = std::filesystem::exists(path + ".idx", none) && std::filesystem::exists(path + ".bin", none);
  if (is_prefix) bad_file(path, "no such file; " + path + ".bin, with its .idx, is there: name that");
  bad_file(path, is_elsewhere(path) ? "no such file; data is read from this machine, not from a hub or the web: download it "
                                      "first, and name the file or the folder"
                                    : "no such file");
}

}  // namespace trivet::data
