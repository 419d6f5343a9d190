#include "data/json_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::data {
namespace {

using MessageJson = nlohmann::json;

struct UnusableKey {
  std::string_view key, advice;
};

constexpr std::string_view kToolAdvice =
    "for which no chat template here has a place; write it into a text, or leave the key out to train without it";
constexpr std::string_view kThoughtAdvice =
    "for which no chat template here has a place; put it into \"content\", as in \"<think>...</think>\", or leave the key out "
    "to train without it";
constexpr std::string_view kMediaAdvice = "but only text is read; leave the key out if the text can stand alone";
constexpr std::string_view kMaskAdvice =
    "which is not read; say with \"weight\" 0 or 1 which messages the loss counts, or leave the key out to count all answers";

constexpr std::array<UnusableKey, 6> kMedia{{{"images", kMediaAdvice},
                                             {"image", kMediaAdvice},
                                             {"audios", kMediaAdvice},
                                             {"audio", kMediaAdvice},
                                             {"videos", kMediaAdvice},
                                             {"video", kMediaAdvice}}};
constexpr std::array<UnusableKey, 7> kOfSamples{
    {{"tools", kToolAdvice},
     {"functions", kToolAdvice},
     {"system", "which is not read; make it the first message, with the role \"system\", or a part of the prompt"},
     {"system_prompt", "which is not read; make it the first message, with the role \"system\", or a part of the prompt"},
     {"loss_mask", kMaskAdvice},
     {"completion_mask", kMaskAdvice},
     {"assistant_masks", kMaskAdvice}}};
constexpr std::array<UnusableKey, 15> kOfMessages{{{"tool_calls", kToolAdvice},
                                                   {"function_call", kToolAdvice},
                                                   {"tools", kToolAdvice},
                                                   {"reasoning_content", kThoughtAdvice},
                                                   {"reasoning", kThoughtAdvice},
                                                   {"thinking", kThoughtAdvice},
                                                   {"thinking_content", kThoughtAdvice},
                                                   {"reasoning_details", kThoughtAdvice},
                                                   {"train_detail", kMaskAdvice},
                                                   {"loss_detail", kMaskAdvice},
                                                   {"mask", kMaskAdvice},
                                                   {"masked", kMaskAdvice},
                                                   {"ignore", kMaskAdvice},
                                                   {"no_loss", kMaskAdvice},
                                                   {"skip", kMaskAdvice}}};
// Keys that say whether the loss counts a message: 1 or true, 0 or false.
constexpr std::array<std::string_view, 11> kWeights{"weight",    "weights", "train",       "training",   "trainable",   "learn",
                                                    "loss_mask", "loss",    "loss_weight", "loss_scale", "compute_loss"};

// Lists and objects say something if anything in them does. A list may be a text of JSON.
enum class False { SaysSomething, SaysNothing };
bool says_something(const MessageJson& value, False of_false) {
  if (value.is_structured())
    return std::any_of(value.begin(), value.end(), [&](const MessageJson& part) { return says_something(part, of_false); });
  if (value.is_boolean()) return value.get<bool>() || of_false == False::SaysSomething;
  if (!value.is_string()) return !value.is_null();
  const auto& text = value.get_ref<const std::string&>();
  return std::ranges::none_of(std::array<std::string_view, 4>{"", "[]", "{}", "null"},
                              [&](std::string_view nothing) { return text == nothing; });
}

void refuse_unusable(const MessageJson& object, std::span<const UnusableKey> keys, std::string_view owner) {
  for (const UnusableKey& unusable : keys)
    if (const auto found = object.find(unusable.key); found != object.end() && says_something(*found, False::SaysNothing))
      refuse_line(fmt::format("{}has \"{}\", {}", owner, unusable.key, unusable.advice));
}

template <typename Names>
bool is_one_of(const Names& names, std::string_view name) {
  return std::ranges::any_of(names, [&](std::string_view known) { return known == name; });
}

// ---- one message

std::optional<bool> weight_in(const MessageJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number() && (value.get<double>() == 0 || value.get<double>() == 1)) return value.get<double>() == 1;
  return {};
}

// Checks whether the value of a key about what is to be learned says no: false, 0, less, or a text of them.
bool says_no(const MessageJson& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() <= 0;
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return is_one_of(std::array<std::string_view, 8>{"false", "False", "FALSE", "no", "No", "0", "0.0", "-1"}, text);
}

// Keys that contradict each other are refused.
bool is_learned(const MessageJson& message, const std::string& role, LineFacts& facts) {
  std::optional<bool> learned;
  for (const std::string_view key : kWeights) {
    const auto found = message.find(key);
    if (found == message.end()) continue;
    const std::optional<bool> weight = weight_in(*found);
    if (!weight)
      refuse_line(
          fmt::format("\"{}\" of a message is {}; use 1 or true if the loss is to count what the assistant says there, "
                      "0 or false if not",
                      key, printable(found->dump(-1, ' ', false, MessageJson::error_handler_t::replace), 40)));
    if (learned && *learned != *weight)
      refuse_line(fmt::format("\"{}\" of a message contradicts another key of it; leave one out", key));
    learned = weight;
    if (*weight && role != "assistant") facts.add_unread(fmt::format("\"messages.{}\" of \"{}\"", key, printable(role, 40)));
  }
  return learned.value_or(true);
}

// A text may not hold NUL, whether it is written as an escape or as a byte.
std::string checked_text(const MessageJson& value, const char* key) {
  std::string text = value.get<std::string>();
  if (text.find('\0') != std::string::npos)
    refuse_line(fmt::format("\"{}\" holds NUL (\\u0000), so it is no text; remove the character, or the line", key));
  return text;
}

std::string text_of_part(const MessageJson& part, LineFacts& facts) {
  if (part.is_string()) return checked_text(part, "content");
  const std::string type = part.is_object() ? part.value("type", MessageJson("text")).dump() : "";
  if (type == "\"text\"" && !part.contains("text"))
    refuse_line("a part of \"content\" has no \"text\", or one that is null; give it a text, or leave the part out");
  if (type != "\"text\"")
    refuse_line(fmt::format("a part of \"content\" is {}; only texts are read, as in {{\"type\": \"text\", \"text\": \"...\"}}",
                            type.empty() ? part.type_name() : "of the type " + printable(type, 40)));
  refuse_unusable(part, kMedia, "a part of \"content\" ");
  refuse_unusable(part, kOfMessages, "a part of \"content\" ");
  for (const auto& [key, value] : part.items()) {
    if (is_one_of(kWeights, key))
      refuse_line(
          fmt::format("a part of \"content\" has \"{}\", which is read of whole messages alone; give it to the message, "
                      "or leave it out",
                      key));
    if (key != "type" && key != "text" && says_something(value, False::SaysSomething))
      facts.add_unread(fmt::format("\"messages.content.{}\"", printable(key, 40)));
  }
  return string_at(part, "text");
}

std::string content_of(const MessageJson& message, const char* key, LineFacts& facts) {
  const MessageJson& content = message.at(key);
  if (!content.is_array()) {
    if (!content.is_string())
      refuse_line(fmt::format("\"{}\" is {}; it must be a string, or a list of texts", key, content.type_name()));
    return checked_text(content, key);
  }
  std::string text;
  for (const MessageJson& part : content) text += text_of_part(part, facts);
  return text;
}

// ShareGPT's names of roles.
std::string role_from(const std::string& from) {
  if (from == "human") return "user";
  if (from == "gpt" || from == "chatgpt" || from == "model") return "assistant";
  return from;
}

Message read_message(const MessageJson& json, LineFacts& facts) {
  constexpr std::string_view kWrong =
      "a message must be an object with \"role\" and \"content\", or with \"from\" and \"value\" as ShareGPT has it";
  if (json.is_null()) refuse_line("a message is null; leave it out, or the whole conversation");
  if (!json.is_object()) refuse_line(std::string(kWrong));
  refuse_unusable(json, kOfMessages, "a message ");
  refuse_unusable(json, kMedia, "a message ");
  const bool from = !json.contains("role") && json.contains("from");
  const char *role_key = from ? "from" : "role", *content_key = from ? "value" : "content";
  if (!json.contains(role_key) && !json.contains(content_key)) refuse_line(std::string(kWrong));
  for (const char* key : {role_key, content_key})
    if (!json.contains(key))
      refuse_line(fmt::format("a message has no \"{}\", or one that is null; give it one, or leave the message out", key));
  Message message{string_at(json, role_key), content_of(json, content_key, facts)};
  if (from) message.role = role_from(message.role);
  message.learned = is_learned(json, message.role, facts);
  for (const auto& [key, value] : json.items())
    if (key != role_key && key != content_key && !is_one_of(kWeights, key) && says_something(value, False::SaysSomething))
      facts.add_unread(fmt::format("\"messages.{}\"", printable(key, 40)));
  return message;
}

}  // namespace

void refuse_line(const std::string& message) { throw DataError(ExitCode::Usage, message); }

std::string string_at(const nlohmann::json& object, const char* key) {
  const MessageJson& value = object.at(key);
  if (!value.is_string()) refuse_line(fmt::format("\"{}\" is {}; it must be a string", key, value.type_name()));
  return checked_text(value, key);
}

void drop_nulls(nlohmann::json& json) {
  if (auto* const list = json.get_ptr<MessageJson::array_t*>()) {
    for (MessageJson& value : *list) drop_nulls(value);
  } else if (auto* const object = json.get_ptr<MessageJson::object_t*>()) {
    std::erase_if(*object, [](const auto& entry) { return entry.second.is_null(); });
    for (auto& entry : *object) drop_nulls(entry.second);
  }
}

std::vector<Message> messages_at(const nlohmann::json& object, const char* key, ChatTemplate chat_template, LineFacts& facts) {
  const MessageJson& messages = object.at(key);
  if (!messages.is_array()) refuse_line(fmt::format("\"{}\" is {}; it must be a list", key, messages.type_name()));
  if (!messages.empty() && messages.front().is_string())
    refuse_line(fmt::format("\"{}\" is a list of texts; write {} with \"role\" and \"content\"", key,
                            key == std::string_view("messages") ? "each as an object" : "one text, or a list of objects"));
  if (chat_template == ChatTemplate::None)
    refuse_line(
        fmt::format("has {}\"{}\", which need a chat template: \"chatml\", \"llama-2\" or \"llama-3\" (data.chat_template, or "
                    "--chat-template of `trivet data prepare`)",
                    std::string_view(key) == "messages" ? "" : "messages in ", key));
  std::vector<Message> all;
  for (const MessageJson& message : messages) all.push_back(read_message(message, facts));
  ++facts.conversations;
  return all;
}

void refuse_unwanted_answer(const nlohmann::json& object) {
  if (const auto label = object.find("label"); label != object.end() && says_no(*label))
    refuse_line(fmt::format(
        "\"label\" {} says that the answer is not wanted (KTO), which is not read, so it would be learned; leave such "
        "lines out, or write pairs with \"chosen\" and \"rejected\"",
        label->dump()));
}

void refuse_unusable_keys(const nlohmann::json& object) {
  refuse_unusable(object, kOfSamples, "");
  refuse_unusable(object, kMedia, "");
}

void note_unread_keys(const nlohmann::json& object, std::initializer_list<std::string_view> read, LineFacts& facts) {
  for (const char* key : {"weight", "train", "trainable", "learn"})
    if (const auto found = object.find(key); found != object.end() && says_no(*found))
      refuse_line(
          fmt::format("\"{}\" of a whole line is not read, so that what it keeps out would be learned; leave such lines out, "
                      "or give the messages of a conversation a \"weight\"",
                      key));
  for (const auto& [key, value] : object.items())
    if (!is_one_of(read, key) && says_something(value, False::SaysSomething))
      facts.add_unread("\"" + printable(key, 40) + "\"");
}

}  // namespace trivet::data
