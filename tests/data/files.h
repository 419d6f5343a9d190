// Contents of files, and files that are not in the repository.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace trivet::data {

inline std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The path of data that is not in the repository. Tests that use it are skipped where it is absent.
inline std::string shared_data(const std::string& name) { return TRIVET_SOURCE_DIR "/../shared/data/" + name; }

}  // namespace trivet::data

#define SKIP_WITHOUT(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << (path) << ", which does not exist"
