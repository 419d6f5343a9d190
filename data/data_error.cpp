#include "data/data_error.h"

#include <filesystem>

namespace trivet::data {

void refuse_missing(const std::string& path) {
  std::error_code none;
  const bool is_prefix = std::filesystem::exists(path + ".idx", none) && std::filesystem::exists(path + ".bin", none);
  bad_file(path, is_prefix ? "no such file; " + path + ".bin, with its .idx, is there: name that" : "no such file");
}

}  // namespace trivet::data
