#include "data/tokenizers/role_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"
#include "data/data_error.h"
#include "data/text_file.h"

namespace trivet::data {
namespace {

constexpr int kRoleFileLevels = 64;

}  // namespace

nlohmann::json read_role_file(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, none))) return nlohmann::json::object();
  const std::string text = read_text(path, kMaxTokenizerBytes, "a file of a model");
  nlohmann::json json =
      json_excess(text, {.levels = kRoleFileLevels}).empty() ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
  if (!json.is_object())
    bad_file(path, fmt::format("is no JSON object of at most {} levels; restore or remove it", kRoleFileLevels));
  return json;
}

std::string token_content(const nlohmann::json& token) {
  const auto content = token.is_object() ? token.find("content") : token.end();
  if (token.is_object() && content != token.end() && content->is_string()) return content->get<std::string>();
  return token.is_string() ? token.get<std::string>() : "";
}

}  // namespace trivet::data
