#include "engine/data/json_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/data/chat_template.h"

namespace trivet::data {
namespace {

using LineJson = nlohmann::json;

constexpr int kLineLevels = 64;

[[noreturn]] void refuse_line(const std::string& message) { throw DataError(ExitCode::Usage, message); }

std::string string_at(const LineJson& object, const char* key) {
  const LineJson& value = object.at(key);
  if (!value.is_string()) refuse_line(fmt::format("\"{}\" is {}; it must be a string", key, value.type_name()));
  return value.get<std::string>();
}

Message message_of(const LineJson& json) {
  if (!json.is_object() || !json.contains("role") || !json.contains("content"))
    refuse_line("a message must be an object with \"role\" and \"content\"");
  for (const char* key : {"tool_calls", "function_call"})
    if (json.contains(key) && !json.at(key).is_null())
      refuse_line(fmt::format("a message has \"{}\", for which no chat template here has a place", key));
  return {string_at(json, "role"), string_at(json, "content")};
}

Document conversation(const LineJson& messages, ChatTemplate chat_template) {
  if (!messages.is_array()) refuse_line(fmt::format("\"messages\" is {}; it must be a list", messages.type_name()));
  if (chat_template == ChatTemplate::None)
    refuse_line(
        "has \"messages\", which need a chat template: \"chatml\", \"llama-2\" or \"llama-3\" (data.chat_template, or "
        "--chat-template of `trivet data prepare`)");
  std::vector<Message> all;
  for (const LineJson& message : messages) all.push_back(message_of(message));
  return render(chat_template, all);
}

// The loss counts the beginning of the frame as it counts the text next to it.
Document in_frame(Document document, const LineOptions& options, bool with_end_of_text) {
  const SpecialFrame& frame = options.frame;
  if (!frame.before.empty()) document.insert(document.begin(), {.ignored = document.front().ignored, .ids = frame.before});
  if (!frame.after.empty()) document.push_back({.ids = frame.after});
  if (with_end_of_text && !options.end_of_text.empty()) document.push_back({.text = options.end_of_text, .special = true});
  return document;
}

std::string keys_of(const LineJson& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) keys += (keys.empty() ? "" : ", ") + ("\"" + printable(key, 40) + "\"");
  return keys.empty() ? "nothing" : printable(keys);
}

}  // namespace

Document document_of_line(std::string_view line, const LineOptions& options) {
  if (json_is_deeper(line, kLineLevels)) refuse_line(fmt::format("is nested deeper than {} levels", kLineLevels));
  LineJson json;
  try {
    json = LineJson::parse(line);
  } catch (const LineJson::exception& error) {
    refuse_line("is not JSON: " + printable(error.what()));
  }
  if (!json.is_object()) refuse_line(fmt::format("is a JSON {}; it must be an object", json.type_name()));
  if (json.contains("messages")) return conversation(json.at("messages"), options.chat_template);
  if (json.contains("prompt") && json.contains("completion"))
    return in_frame({{string_at(json, "prompt"), true}, {string_at(json, "completion"), false}}, options, true);
  if (json.contains("text")) return in_frame({{string_at(json, "text"), false}}, options, options.end_of_each_text);
  refuse_line(fmt::format("has {}; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"", keys_of(json)));
}

}  // namespace trivet::data
