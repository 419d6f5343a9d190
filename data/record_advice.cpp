#include "data/record_advice.h"

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

// Published pairs of a question and its answer: P3 and FLAN, MetaMathQA, NuminaMath, CNN/DailyMail ...
std::string advice_for_answer(const nlohmann::json& object) {
  constexpr std::array<std::string_view, 12> questions{"prompt", "instruction", "question", "query",   "problem", "inputs",
                                                       "input",  "source",      "context",  "article", "human",   "document"};
  constexpr std::array<std::string_view, 12> answers{"completions", "response", "answer",  "solution",  "targets", "output",
                                                     "outputs",     "target",   "summary", "assistant", "answers", "responses"};
  const auto first_in = [&](const auto& names) {
    const auto found = std::ranges::find_if(names, [&](std::string_view name) {
      const auto at = object.find(name);
      return at != object.end() && (at->is_string() || at->is_array());
    });
    return found == names.end() ? std::string_view() : *found;
  };
  const std::string_view question = first_in(questions), answer = first_in(answers);
  if (question.empty() || answer.empty()) return "";
  const std::string rest = fmt::format("\"{}\"{} as \"completion\"", answer,
                                       object[std::string(answer)].is_array() ? ", a text instead of a list," : "");
  return question == "prompt" ? "write " + rest : fmt::format("write \"{}\" as \"prompt\", and {}", question, rest);
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
  if (const std::string advice = advice_for_answer(object); !advice.empty()) return advice;
  const std::string text = longest_text(object);
  return text.empty() ? "" : fmt::format("if \"{0}\" is the text, write it as \"text\"", printable(text, 40));
}

}  // namespace trivet::data
