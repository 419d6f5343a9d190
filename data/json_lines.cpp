#include "data/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/bounded_json.h"
#include "core/json_error.h"
#include "core/printable.h"
#include "data/chat_template.h"
#include "data/json_messages.h"
#include "data/record_advice.h"

namespace trivet::data {
namespace {

using LineJson = nlohmann::json;

constexpr JsonLimits kLineLimits{.levels = 64};

// ---- keys that are given twice, of which a parser keeps one

int64_t keys_in(std::string_view json) {
  int64_t keys = 0;
  bool in_string = false;
  for (size_t at = 0; at < json.size(); ++at) {
    if (json[at] == '"')
      in_string = !in_string;
    else if (in_string)
      at += json[at] == '\\' ? 1 : 0;
    else
      keys += json[at] == ':' ? 1 : 0;
  }
  return keys;
}

int64_t keys_of_all(const LineJson& json) {
  if (!json.is_structured()) return 0;
  auto keys = static_cast<int64_t>(json.is_object() ? json.size() : 0);
  for (const LineJson& value : json) keys += keys_of_all(value);
  return keys;
}

[[noreturn]] void refuse_repeated_key(std::string_view line) {
  std::vector<std::set<std::string>> open;  // the keys of each object around the place
  const auto check = [&](int, LineJson::parse_event_t event, LineJson& value) {
    if (event == LineJson::parse_event_t::object_start) open.emplace_back();
    if (event == LineJson::parse_event_t::object_end) open.pop_back();
    if (event == LineJson::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
      refuse_line(fmt::format("has the key \"{}\" twice; leave one of them out", printable(value.get<std::string>(), 40)));
    return true;
  };
  const LineJson read_again = LineJson::parse(line, check);
  static_cast<void>(read_again);
  refuse_line("has a key twice; leave one of them out");
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

std::string what_to_do(const LineJson& json) {
  const std::string advice = advice_for_record(json);
  return advice.empty() ? "" : ": " + advice;
}

Document prompt_and_completion(std::string prompt, std::string completion, const LineOptions& options) {
  return in_frame({{std::move(prompt), true}, {.text = std::move(completion), .apart = true}}, options, true);
}

// The loss counts all that follows the prompt and the beginning of the answer, as TRL's does, but for messages that are not to
// be learned.
Document completed_conversation(const std::vector<Message>& prompt, const std::vector<Message>& completion,
                                ChatTemplate chat_template) {
  if (completion.empty() || completion.front().role != "assistant")
    refuse_line("\"completion\" must begin with a message of \"assistant\"");
  std::vector<Message> all = prompt;
  all.insert(all.end(), completion.begin(), completion.end());
  Document document = render(chat_template, all);
  const auto parts_of = [&](size_t messages) {
    return messages == 0 ? 0 : render(chat_template, std::span(all).first(messages)).size();
  };
  const size_t before = render_for_answer(chat_template, prompt).size();
  for (size_t part = 0; part < document.size(); ++part) document[part].ignored = part < before;
  for (size_t i = prompt.size(); i < all.size(); ++i)
    if (!all[i].learned)
      for (size_t part = parts_of(i); part < parts_of(i + 1); ++part) document[part].ignored = true;
  return document;
}

Document prompted(const LineJson& json, const LineOptions& options, LineFacts& facts) {
  refuse_unusable_keys(json);
  refuse_unwanted_answer(json);
  note_unread_keys(json, {"prompt", "completion"}, facts);
  const bool lists = json.at("prompt").is_array();
  if (lists != json.at("completion").is_array())
    refuse_line("\"prompt\" and \"completion\" must both be texts, or both lists of messages");
  if (!lists) return prompt_and_completion(string_at(json, "prompt"), string_at(json, "completion"), options);
  return completed_conversation(messages_at(json, "prompt", options.chat_template, facts),
                                messages_at(json, "completion", options.chat_template, facts), options.chat_template);
}

Document conversation(const LineJson& json, const char* key, const LineOptions& options, LineFacts& facts) {
  refuse_unusable_keys(json);
  note_unread_keys(json, {key}, facts);
  return render(options.chat_template, messages_at(json, key, options.chat_template, facts));
}

// One message of a conversation on each line, as in the files of messages of OpenAssistant, learned as texts of their own,
// would lose who says what.
void refuse_message_alone(const LineJson& json) {
  const auto role = json.find("role");
  if (role == json.end() || !role->is_string()) return;
  constexpr std::array<std::string_view, 7> kRoles{"prompter", "user", "human", "assistant", "gpt", "bot", "system"};
  if (std::ranges::find(kRoles, role->get_ref<const std::string&>()) == kRoles.end()) return;
  refuse_line(fmt::format(
      "has \"text\" and the \"role\" \"{}\": it is one message, not a conversation. Write each conversation as a line "
      "with \"messages\", with \"role\" (prompter: user) and \"content\"{}; to learn each message as a text of its "
      "own, leave \"role\" out",
      role->get_ref<const std::string&>(),
      json.contains("parent_id") ? ", which are those on the path from a first message to a last reply" : ""));
}

bool is_empty(const LineJson& value) {
  return (value.is_array() && value.empty()) || (value.is_string() && value.get_ref<const std::string&>().empty());
}

// Checks whether an object has this key, and something in it. Tables that were merged have "" and [] where a line has none.
bool holds(const LineJson& json, const char* key) { return json.contains(key) && !is_empty(json.at(key)); }

// The first kind of document of which the line holds something, or the first that it has.
Document document_of(const LineJson& json, const LineOptions& options, LineFacts& facts) {
  const bool prompts = json.contains("prompt") && json.contains("completion"), text = json.contains("text");
  const bool list = json.contains("conversations"), any = holds(json, "messages") || holds(json, "prompt") ||
                                                          holds(json, "completion") || holds(json, "text") ||
                                                          holds(json, "conversations");
  const auto is_it = [&](bool has, std::initializer_list<const char*> keys) {
    return has && (!any || std::ranges::any_of(keys, [&](const char* key) { return holds(json, key); }));
  };
  if (is_it(json.contains("messages") && (any || !(prompts || text || list)), {"messages"}))
    return conversation(json, "messages", options, facts);
  if (is_it(prompts, {"prompt", "completion"})) return prompted(json, options, facts);
  if (is_it(text, {"text"})) {
    refuse_message_alone(json);
    note_unread_keys(json, {"text"}, facts);
    return in_frame({{string_at(json, "text"), false}}, options, options.end_of_each_text);
  }
  if (is_it(list, {"conversations"})) return conversation(json, "conversations", options, facts);
  refuse_line(fmt::format("has {}; it must have \"text\", \"prompt\" and \"completion\", or \"messages\"{}", keys_of(json),
                          json.contains("chosen")
                              ? ". Pairs of answers are read with training.objective \"dpo\", or prepared with "
                                "`trivet data prepare --pairs`"
                              : what_to_do(json)));
}

// ---- pairs of answers

struct Answers {
  std::vector<Message> prompt, chosen, rejected;
};

// The prompt is what both begin with if it is not given, or given as the text of their last common message.
Answers answers_of(const LineJson& json, ChatTemplate chat_template, LineFacts& facts) {
  Answers answers{{}, messages_at(json, "chosen", chat_template, facts), messages_at(json, "rejected", chat_template, facts)};
  const bool as_text = json.contains("prompt") && json.at("prompt").is_string();
  if (json.contains("prompt") && !as_text) {
    answers.prompt = messages_at(json, "prompt", chat_template, facts);
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
        "messages, such as [{\"role\": \"user\", \"content\": ...}]");
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
  if (std::ranges::none_of(answer, [](const Message& message) { return message.role == "assistant" && message.learned; }))
    refuse_line(fmt::format("\"{}\" has no message of the assistant that the loss counts; give one the weight 1", key));
  const size_t before = prompt.empty() ? 0 : render(chat_template, prompt).size();
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  Document document = render(chat_template, prompt);
  for (size_t part = 0; part < before; ++part) document[part].ignored = true;
  return document;
}

// Returns the common start of two texts as their prompt, as in TRL (extract_prompt), without a space before the
// answers. If one text is the start of the other, its last character goes to the answers. Characters stay whole.
std::string common_prompt(std::string_view chosen, std::string_view rejected) {
  const std::string_view shorter = chosen.size() < rejected.size() ? chosen : rejected;
  auto same = static_cast<size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
  const bool differ = same < shorter.size();
  if (!differ && same > 0) --same;
  const auto is_continuation = [&](size_t at) { return (static_cast<unsigned char>(shorter[at]) & 0xC0) == 0x80; };
  while (same > 0 && is_continuation(same)) --same;
  if (differ && same > 0 && shorter[same - 1] == ' ') --same;
  return std::string(shorter.substr(0, same));
}

std::vector<Document> pair_of(const LineJson& json, const LineOptions& options, LineFacts& facts) {
  for (const char* key : {"chosen", "rejected"})
    if (!json.contains(key))
      refuse_line(fmt::format("has {}, but no \"{}\"; a pair of answers must have \"prompt\", \"chosen\" and \"rejected\"",
                              keys_of(json), key));
  refuse_unusable_keys(json);
  note_unread_keys(json, {"prompt", "chosen", "rejected"}, facts);
  if (json.at("chosen").is_array()) {
    const Answers answers = answers_of(json, options.chat_template, facts);
    facts.without_prompt += answers.prompt.empty() ? 1 : 0;
    return {conversation_with(answers.prompt, answers.chosen, "chosen", options.chat_template),
            conversation_with(answers.prompt, answers.rejected, "rejected", options.chat_template)};
  }
  const auto texts = std::array{string_at(json, "chosen"), string_at(json, "rejected")};
  const bool is_given = json.contains("prompt");
  const std::string prompt = is_given ? string_at(json, "prompt") : common_prompt(texts[0], texts[1]);
  facts.without_prompt += prompt.empty() ? 1 : 0;
  std::vector<Document> pair;
  for (const char* key : {"chosen", "rejected"}) {
    std::string answer = texts[pair.size()].substr(is_given ? 0 : prompt.size());
    if (answer.empty()) refuse_line(fmt::format("\"{}\" is empty; an answer must have a text", key));
    pair.push_back(prompt_and_completion(prompt, std::move(answer), options));
  }
  return pair;
}

}  // namespace

std::vector<Document> documents_of_line(std::string_view line, const LineOptions& options, LineFacts* facts) {
  LineJson json;
  try {
    json = parse_bounded<LineJson>(line, kLineLimits);
  } catch (const JsonExcess& excess) {
    refuse_line(excess.what());
  } catch (const LineJson::exception& error) {
    refuse_line("is not JSON: " + json_error_in_words(line, error));
  }
  if (keys_in(line) != keys_of_all(json)) refuse_repeated_key(line);
  if (!json.is_object()) refuse_line(fmt::format("is a JSON {}; it must be an object", json.type_name()));
  drop_nulls(json);
  LineFacts not_told;
  LineFacts& of_line = facts ? *facts : not_told;
  if (options.kind == LineKind::Pair) return pair_of(json, options, of_line);
  return {document_of(json, options, of_line)};
}

}  // namespace trivet::data
