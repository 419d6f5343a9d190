#include "engine/data/record_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/printable.h"

namespace trivet::data {
namespace {

struct RecordLayout {
  std::vector<std::string_view> keys;
  std::string_view advice;
};

// The name of the longest string that has at least two words; empty: there is none.
std::string longest_text(const nlohmann::json& object) {
  std::string longest;
  size_t bytes = 0;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() <= bytes || text.find(' ') == std::string::npos) continue;
    bytes = text.size();
    longest = key;
  }
  return longest;
}

}  // namespace

std::string advice_for_record(const nlohmann::json& object) {
  static const std::array<RecordLayout, 6> layouts{
      {{{"instruction", "output"},
        "write \"instruction\", with \"input\" after it, as \"prompt\", and \"output\" as \"completion\""},
       {{"instruction", "response"},
        "write \"instruction\", with \"context\" after it, as \"prompt\", and \"response\" as \"completion\""},
       {{"question", "answer"}, "write \"question\" as \"prompt\", and \"answer\" as \"completion\""},
       {{"conversation"}, "write \"conversation\" as \"messages\", with \"role\" and \"content\""},
       {{"message_tree_id", "prompt"},
        "write each path from the prompt to a last reply as \"messages\", with \"role\" (prompter: user) and \"content\""},
       {{"id", "data"}, "write \"data\" as \"messages\", in which \"role\" is user and assistant in turn"}}};
  for (const RecordLayout& layout : layouts)
    if (std::ranges::all_of(layout.keys, [&](std::string_view key) { return object.contains(key); }))
      return std::string(layout.advice);
  const std::string text = longest_text(object);
  return text.empty() ? "" : fmt::format("if \"{0}\" is the text, write it as \"text\"", printable(text, 40));
}

}  // namespace trivet::data
