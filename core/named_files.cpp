#include "core/named_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace trivet {
namespace {

constexpr std::string_view kBetween = "//";

}  // namespace

std::string list_of_named_files(const std::vector<NamedFile>& files) {
  std::string list;
  for (const NamedFile& file : files) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(file.path, error).lexically_normal().string();
    if (error || !path.starts_with('/')) continue;
    if (!list.empty()) list += kBetween;
    list += file.name;
    list += kBetween;
    list += path.substr(1);
  }
  return list;
}

std::vector<NamedFile> named_files(std::string_view list) {
  std::vector<NamedFile> files;
  std::optional<std::string> name;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(kBetween, begin), list.size());
    const std::string word(list.substr(begin, end - begin));
    if (name) files.push_back({*name, "/" + word});
    name = name ? std::nullopt : std::optional(word);
    begin = end + kBetween.size();
  }
  return files;
}

}  // namespace trivet
