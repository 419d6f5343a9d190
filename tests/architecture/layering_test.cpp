// Checks the order of folders: a folder may include only from itself and from folders left of it in the order below.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string name;
  std::vector<std::string> may_use;
};

// DESIGN: core -> kernels, comm, pipeline -> tensor_parallel -> model -> zero -> engine -> autotune -> cli
const std::vector<Folder>& folders() {
  static const std::vector<Folder> list{
      {"core", {}},
      {"kernels", {"core"}},
      {"comm", {"core"}},
      {"pipeline", {"core"}},
      {"tensor_parallel", {"core", "kernels", "comm"}},
      {"model", {"core", "kernels", "comm", "tensor_parallel"}},
      {"zero", {"core", "kernels", "comm", "tensor_parallel"}},
      {"engine", {"core", "kernels", "comm", "pipeline", "tensor_parallel", "model", "zero"}},
      {"autotune", {"core", "kernels", "comm", "pipeline", "tensor_parallel", "model", "zero", "engine"}},
      {"cli", {"core", "kernels", "comm", "pipeline", "tensor_parallel", "model", "zero", "engine", "autotune"}},
  };
  return list;
}

bool is_source(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".h" || extension == ".cpp" || extension == ".inl" || extension == ".cu" || extension == ".cuh";
}

// The folders of this project that a file includes from.
std::vector<std::string> folders_included(const fs::path& path) {
  static const std::regex include(R"re(^\s*#\s*include\s+"([a-z_]+)/)re");
  std::vector<std::string> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (std::smatch match; std::regex_search(line, match, include)) found.push_back(match[1]);
  return found;
}

TEST(Layering, NoFolderIncludesFromOneRightOfIt) {
  const fs::path root = TRIVET_SOURCE_DIR;
  int files = 0;
  for (const Folder& folder : folders()) {
    ASSERT_TRUE(fs::exists(root / folder.name)) << folder.name;
    int of_folder = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder.name)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      ++files;
      for (const std::string& used : folders_included(entry.path())) {
        const bool allowed = used == folder.name || std::count(folder.may_use.begin(), folder.may_use.end(), used) > 0;
        ++of_folder;
        EXPECT_TRUE(allowed) << entry.path() << " includes from " << used << "/, which " << folder.name << "/ may not use";
      }
    }
    EXPECT_GT(of_folder, 5) << "too few includes were found in " << folder.name << "/";
  }
  EXPECT_GT(files, 400);
}

TEST(Layering, HeadersKeepSlowParsersOutOfOtherFiles) {
  int headers = 0;
  for (const Folder& folder : folders()) {
    const fs::path root = fs::path(TRIVET_SOURCE_DIR) / folder.name;
    ASSERT_TRUE(fs::exists(root)) << root;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".h") continue;
      ++headers;
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      EXPECT_NE(text.find("#pragma once"), std::string::npos) << entry.path() << " was not read, or has no guard";
      EXPECT_EQ(text.find("<nlohmann/json.hpp>"), std::string::npos) << entry.path() << ": include <nlohmann/json_fwd.hpp>";
      EXPECT_EQ(text.find("<CLI/CLI.hpp>"), std::string::npos) << entry.path() << ": declare CLI::App";
    }
  }
  EXPECT_GT(headers, 150);
}

}  // namespace
