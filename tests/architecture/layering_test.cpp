// Checks the order of folders and of the rooms of engine/: each may include only from itself and from those that the table
// below names. No header includes itself, directly or through others.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string name;
  std::vector<std::string> may_use;
};

// core -> kernels, comm, pipeline -> tensor_parallel -> model -> zero -> engine -> embed, autotune; engine -> interchange, and
// with report -> trainer -> c, cli; comm -> hvd. The rooms of engine/ are listed before it; what is in none of them is the
// engine proper.
const std::vector<Folder>& folders() {
  static const std::vector<Folder> list{
      {"core", {}},
      {"kernels", {"core"}},
      {"comm", {"core"}},
      {"hvd", {"core", "comm"}},
      {"pipeline", {"core"}},
      {"tensor_parallel", {"core", "kernels", "comm"}},
      {"model", {"core", "kernels", "comm", "tensor_parallel"}},
      {"zero", {"core", "kernels", "comm", "tensor_parallel"}},
      {"data", {"core"}},
      {"engine/config", {"core", "pipeline", "model", "data"}},
      {"engine/checkpoint", {"core", "comm", "zero"}},
      {"engine/optimizer", {"core", "kernels", "comm", "zero", "engine/config", "engine/checkpoint"}},
      {"engine",
       {"core", "kernels", "comm", "pipeline", "tensor_parallel", "model", "zero", "engine/config", "engine/checkpoint",
        "engine/optimizer"}},
      {"embed",
       {"core", "kernels", "comm", "pipeline", "zero", "engine", "engine/config", "engine/checkpoint", "engine/optimizer"}},
      {"c", {"core", "comm", "embed", "engine/config"}},
      {"interchange/foreign", {"core", "data", "engine/checkpoint"}},
      {"interchange/hugging_face",
       {"core", "model", "zero", "engine/config", "engine/checkpoint", "data", "interchange/foreign"}},
      {"report/monitor", {"core"}},
      {"report", {"core", "report/monitor"}},
      {"trainer",
       {"core", "kernels", "comm", "model", "zero", "engine", "engine/config", "engine/checkpoint", "engine/optimizer", "data",
        "interchange/hugging_face", "report", "report/monitor"}},
      {"autotune",
       {"core", "kernels", "comm", "pipeline", "tensor_parallel", "model", "engine", "engine/config", "engine/optimizer",
        "data", "report", "report/monitor"}},
      {"cli",
       {"core", "comm", "pipeline", "model", "engine", "engine/config", "engine/checkpoint", "engine/optimizer", "data",
        "interchange/hugging_face", "report", "report/monitor", "trainer", "autotune"}},
  };
  return list;
}

bool is_source(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".h" || extension == ".cpp" || extension == ".inl" || extension == ".cu" || extension == ".cuh";
}

// The headers of this project that a file includes, as it names them: "zero/stage.h".
std::vector<std::string> includes_of(const fs::path& path) {
  static const std::regex include(R"re(^\s*#\s*include\s+"([a-z_]+/[^"]+)")re");
  std::vector<std::string> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (std::smatch match; std::regex_search(line, match, include)) found.push_back(match[1]);
  return found;
}

// The folder of the table that a file belongs to; "" for a file of none.
std::string folder_of(const std::string& file) {
  std::string found;
  for (const Folder& folder : folders())
    if (file.starts_with(folder.name + "/") && folder.name.size() > found.size()) found = folder.name;
  return found;
}

TEST(Layering, NoFolderIncludesFromOneRightOfIt) {
  const fs::path root = TRIVET_SOURCE_DIR;
  int files = 0;
  for (const Folder& folder : folders()) {
    ASSERT_TRUE(fs::exists(root / folder.name)) << folder.name;
    int of_folder = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder.name)) {
      const std::string name = fs::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || !is_source(entry.path()) || folder_of(name) != folder.name) continue;
      ++files;
      for (const std::string& header : includes_of(entry.path())) {
        const std::string used = folder_of(header);
        const bool allowed = used == folder.name || std::count(folder.may_use.begin(), folder.may_use.end(), used) > 0;
        ++of_folder;
        EXPECT_TRUE(allowed) << name << " includes " << header << ", which " << folder.name << "/ may not use";
      }
    }
    EXPECT_GT(of_folder, 5) << "too few includes were found in " << folder.name << "/";
  }
  EXPECT_GT(files, 400);
}

TEST(Layering, NoHeaderIncludesItself) {
  const fs::path root = TRIVET_SOURCE_DIR;
  std::set<std::string> done;
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& header) {
    const auto start = std::find(path.begin(), path.end(), header);
    std::string cycle;
    for (auto at = start; at != path.end(); ++at) cycle += *at + " -> ";
    EXPECT_TRUE(cycle.empty()) << cycle << header;
    if (!cycle.empty() || !done.insert(header).second) return;
    path.push_back(header);
    for (const std::string& included : includes_of(root / header)) visit(included);
    path.pop_back();
  };
  for (const Folder& folder : folders())
    for (const auto& entry : fs::recursive_directory_iterator(root / folder.name))
      if (entry.path().extension() == ".h") visit(fs::relative(entry.path(), root).string());
  EXPECT_GT(done.size(), 250u);
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
      const bool guarded =
          text.find("#pragma once") != std::string::npos || text.find("#ifndef TRIVET_C_H") != std::string::npos;
      EXPECT_TRUE(guarded) << entry.path() << " was not read, or has no guard";
      EXPECT_EQ(text.find("<nlohmann/json.hpp>"), std::string::npos) << entry.path() << ": include <nlohmann/json_fwd.hpp>";
      EXPECT_EQ(text.find("<CLI/CLI.hpp>"), std::string::npos) << entry.path() << ": declare CLI::App";
    }
  }
  EXPECT_GT(headers, 150);
}

// Text of others is parsed by parse_bounded() (core/bounded_json.h), or after json_excess() or parse_strict() has looked at it.
TEST(Layering, OnlyTheseFilesParseJsonWithoutBounds) {
  const std::set<std::string> known{
      // What this process has written, and what ranks of the same job and build tell each other.
      "autotune/measured_prediction.cpp", "autotune/plan_prediction.cpp", "autotune/search_text.cpp",
      "autotune/tune/config_document.cpp", "autotune/tune/planned_space.cpp", "autotune/tune/rank_devices.cpp",
      "autotune/tune/result_key.cpp", "autotune/tune/tune.cpp", "cli/checkpoint_exchange.cpp", "engine/config/explain.cpp",
      "engine/config/schema.cpp", "engine/gradient_audit.cpp", "engine/not_finite.cpp", "engine/same_on_all_ranks.cpp",
      "engine/timeline/files.cpp", "trainer/intake.cpp", "engine/weight_audit.cpp", "engine/weight_health.cpp",
      // Text that was looked at before.
      "autotune/tune/results.cpp", "comm/tf_config.cpp", "core/bounded_json.h", "engine/checkpoint/strict_json.cpp",
      "data/file_kind.cpp", "data/json_lines.cpp", "data/tokenizer.cpp", "data/tokenizers/folder_tokens.cpp",
      "data/tokenizers/role_file.cpp", "interchange/hugging_face/adapted_files.cpp", "interchange/hugging_face/export.cpp",
      "interchange/hugging_face/pretrained_model.cpp", "interchange/hugging_face/text_files.cpp",
      "report/config_differences.cpp", "trainer/output_checks.cpp"};
  std::set<std::string> found;
  for (const Folder& folder : folders())
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(TRIVET_SOURCE_DIR) / folder.name)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (text.find("json::parse(") != std::string::npos || text.find("Json::parse(") != std::string::npos)
        found.insert(fs::relative(entry.path(), TRIVET_SOURCE_DIR).string());
    }
  EXPECT_EQ(found, known);
}

}  // namespace
