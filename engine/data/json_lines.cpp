#include "engine/data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/data/chat_template.h"

namespace trivet::data {
namespace {

using LineJson = nlohmann::json;

constexpr JsonLimits kLineLimits{.levels = 64};

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

std::vector<Message> messages_at(const LineJson& object, const char* key, ChatTemplate chat_template) {
  const LineJson& messages = object.at(key);
  if (!messages.is_array()) refuse_line(fmt::format("\"{}\" is {}; it must be a list", key, messages.type_name()));
  if (chat_template == ChatTemplate::None)
    refuse_line(
        fmt::format("has {}\"{}\", which need a chat template: \"chatml\", \"llama-2\" or \"llama-3\" (data.chat_template, or "
                    "--chat-template of `trivet data prepare`)",
                    std::string_view(key) == "messages" ? "" : "messages in ", key));
  std::vector<Message> all;
  for (const LineJson& message : messages) all.push_back(message_of(message));
  return all;
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

Document prompt_and_completion(std::string prompt, std::string completion, const LineOptions& options) {
  return in_frame({{std::move(prompt), true}, {std::move(completion), false}}, options, true);
}

// ---- pairs of answers

struct Answers {
  std::vector<Message> prompt, chosen, rejected;
};

// The prompt is what both begin with if it is not given, or given as the text of their last common message.
Answers answers_of(const LineJson& json, ChatTemplate chat_template) {
  Answers answers{{}, messages_at(json, "chosen", chat_template), messages_at(json, "rejected", chat_template)};
  const bool as_text = json.contains("prompt") && json.at("prompt").is_string();
  if (json.contains("prompt") && !as_text) {
    answers.prompt = messages_at(json, "prompt", chat_template);
    return answers;
  }
  const auto same = [](const Message& a, const Message& b) { return a.role == b.role && a.content == b.content; };
  const auto [end, other_end] =
      std::mismatch(answers.chosen.begin(), answers.chosen.end(), answers.rejected.begin(), answers.rejected.end(), same);
  answers.prompt.assign(answers.chosen.begin(), end);
  answers.chosen.erase(answers.chosen.begin(), end);
  answers.rejected.erase(answers.rejected.begin(), other_end);
  if (as_text && (answers.prompt.empty() || answers.prompt.back().content != json.at("prompt").get<std::string>()))
    refuse_line(
        "\"prompt\" is a text, but not the last message that \"chosen\" and \"rejected\" have in common; make it a list of "
        "messages, or leave it out");
  return answers;
}

// The conversation up to the end of an answer. The loss counts what the assistant says after the prompt.
Document conversation_with(std::vector<Message> prompt, const std::vector<Message>& answer, const char* key,
                           ChatTemplate chat_template) {
  const bool says_something = std::ranges::any_of(
      answer, [](const Message& message) { return message.role == "assistant" && !message.content.empty(); });
  if (!says_something)
    refuse_line(fmt::format("\"{}\" has no message in which the assistant says something{}", key,
                            answer.empty() ? " after what both answers begin with" : ""));
  const size_t before = prompt.empty() ? 0 : render(chat_template, prompt).size();
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  Document document = render(chat_template, prompt);
  for (size_t part = 0; part < before; ++part) document[part].ignored = true;
  return document;
}

std::vector<Document> pair_of(const LineJson& json, const LineOptions& options) {
  for (const char* key : {"chosen", "rejected"})
    if (!json.contains(key))
      refuse_line(fmt::format("has {}, but no \"{}\"; a pair of answers must have \"prompt\", \"chosen\" and \"rejected\"",
                              keys_of(json), key));
  if (json.at("chosen").is_array()) {
    const Answers answers = answers_of(json, options.chat_template);
    return {conversation_with(answers.prompt, answers.chosen, "chosen", options.chat_template),
            conversation_with(answers.prompt, answers.rejected, "rejected", options.chat_template)};
  }
  if (!json.contains("prompt"))
    refuse_line(fmt::format("has {}, but no \"prompt\"; only lists of messages may leave it out", keys_of(json)));
  const std::string prompt = string_at(json, "prompt");
  std::vector<Document> pair;
  for (const char* key : {"chosen", "rejected"}) {
    std::string answer = string_at(json, key);
    if (answer.empty()) refuse_line(fmt::format("\"{}\" is empty; an answer must have a text", key));
    pair.push_back(prompt_and_completion(prompt, std::move(answer), options));
  }
  return pair;
}

}  // namespace

std::vector<Document> documents_of_line(std::string_view line, const LineOptions& options) {
  LineJson json;
  try {
    json = parse_bounded<LineJson>(line, kLineLimits);
  } catch (const JsonExcess& excess) {
    refuse_line(excess.what());
  } catch (const LineJson::exception& error) {
    refuse_line("is not JSON: " + printable(error.what()));
  }
  if (!json.is_object()) refuse_line(fmt::format("is a JSON {}; it must be an object", json.type_name()));
  if (options.kind == LineKind::Pair) return pair_of(json, options);
  if (json.contains("messages")) return {render(options.chat_template, messages_at(json, "messages", options.chat_template))};
  if (json.contains("prompt") && json.contains("completion"))
    return {prompt_and_completion(string_at(json, "prompt"), string_at(json, "completion"), options)};
  if (json.contains("text")) return {in_frame({{string_at(json, "text"), false}}, options, options.end_of_each_text)};
  refuse_line(fmt::format("has {}; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"{}", keys_of(json),
                          json.contains("chosen")
                              ? ". Pairs of answers are read with training.objective \"dpo\", or prepared with "
                                "`trivet data prepare --pairs`"
                              : ""));
}

}  // namespace trivet::data
