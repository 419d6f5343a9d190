#include "data/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/error.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "data/tokenizer.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

DocumentPart special_part(std::string_view token, bool ignored) { return {std::string(token), ignored, true}; }

[[noreturn]] void refuse_messages(const std::string& message) { throw DataError(ExitCode::Usage, message); }

// Checks as Python's str.strip() does: white space of Unicode, and the separators of ASCII.
bool is_stripped(char32_t point) { return (point >= 0x1C && point <= 0x1F) || class_of(point) == CharacterClass::Space; }

std::string stripped(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = decode_utf8(text, 0);
    if (first.bytes == 0 || !is_stripped(first.value)) break;
    text.remove_prefix(static_cast<size_t>(first.bytes));
  }
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    const CodePoint last = decode_utf8(text, start);
    if (last.bytes == 0 || start + static_cast<size_t>(last.bytes) != text.size() || !is_stripped(last.value)) break;
    text.remove_suffix(static_cast<size_t>(last.bytes));
  }
  return std::string(text);
}

bool is_answer(const Message& message) { return message.role == "assistant"; }

bool is_ignored(const Message& message) { return !is_answer(message) || !message.learned; }

Document chatml(std::span<const Message> messages) {
  Document document;
  for (const Message& message : messages) {
    const bool ignored = is_ignored(message);
    document.push_back(special_part("<|im_start|>", true));
    document.push_back({message.role + "\n", true});
    document.push_back({message.content, ignored});
    document.push_back(special_part("<|im_end|>", ignored));
    document.push_back({"\n", true});
  }
  return document;
}

Document llama_2(std::span<const Message> messages) {
  std::string system;
  if (messages[0].role == "system") {
    system = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  Document document;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != (i % 2 == 0 ? "user" : "assistant"))
      refuse_messages(
          fmt::format("the template \"llama-2\" takes messages of user and assistant in turn, after at most one of system; "
                      "here \"{}\" comes where \"{}\" must",
                      messages[i].role, i % 2 == 0 ? "user" : "assistant"));
    if (is_answer(messages[i])) {
      document.push_back({" " + stripped(messages[i].content) + " ", is_ignored(messages[i])});
      document.push_back(special_part("</s>", is_ignored(messages[i])));
    } else {
      document.push_back(special_part("<s>", true));
      document.push_back(special_part("[INST]", true));
      document.push_back({" " + stripped((i == 0 ? system : "") + messages[i].content) + " ", true});
      document.push_back(special_part("[/INST]", true));
    }
  }
  if (document.empty()) refuse_messages("the template \"llama-2\" has no place for a system message without a question");
  return document;
}

Document llama_3(std::span<const Message> messages) {
  Document document{special_part("<|begin_of_text|>", true)};
  for (const Message& message : messages) {
    const bool ignored = is_ignored(message);
    document.push_back(special_part("<|start_header_id|>", true));
    document.push_back({message.role, true});
    document.push_back(special_part("<|end_header_id|>", true));
    document.push_back({"\n\n", true});
    document.push_back({stripped(message.content), ignored});
    document.push_back(special_part("<|eot_id|>", ignored));
  }
  return document;
}

}  // namespace

Document render(ChatTemplate chat_template, std::span<const Message> messages) {
  if (messages.empty()) refuse_messages("a conversation needs at least one message");
  for (const Message& message : messages)
    if (message.role != "system" && message.role != "user" && message.role != "assistant")
      refuse_messages(
          fmt::format("the role \"{}\" is not accepted; use \"system\", \"user\" or \"assistant\"", printable(message.role)));
  switch (chat_template) {
    case ChatTemplate::ChatMl: return chatml(messages);
    case ChatTemplate::Llama2: return llama_2(messages);
    case ChatTemplate::Llama3: return llama_3(messages);
    case ChatTemplate::None: break;
  }
  throw std::logic_error("render: no chat template");
}

// An answer without text is rendered, and what belongs to the answer is cut off again: that is what the loss counts, and
// whatever follows it.
Document render_for_answer(ChatTemplate chat_template, std::span<const Message> messages) {
  std::vector<Message> with_answer(messages.begin(), messages.end());
  const size_t before = with_answer.empty() ? 0 : render(chat_template, messages).size();
  with_answer.push_back({"assistant", ""});
  Document document = render(chat_template, with_answer);
  const auto answer = std::find_if(document.begin() + static_cast<std::ptrdiff_t>(before), document.end(),
                                   [](const DocumentPart& part) { return !part.ignored; });
  document.erase(answer, document.end());
  return document;
}

std::string end_of_answer(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl: return "<|im_end|>";
    case ChatTemplate::Llama2: return "</s>";
    case ChatTemplate::Llama3: return "<|eot_id|>";
    case ChatTemplate::None: break;
  }
  throw std::logic_error("end_of_answer: no chat template");
}

std::vector<std::string> special_tokens_of(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl: return {"<|im_start|>", "<|im_end|>"};
    case ChatTemplate::Llama2: return {"<s>", "</s>"};
    case ChatTemplate::Llama3: return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
    case ChatTemplate::None: break;
  }
  return {};
}

std::vector<std::string> notes_on_template(ChatTemplate chat_template, const Tokenizer& tokenizer) {
  std::vector<std::string> notes;
  for (const std::string& token : special_tokens_of(chat_template))
    if (tokenizer.special_id(token) < 0)
      notes.push_back(fmt::format("the vocabulary has no special token {}, so it is written as text", token));
  return notes;
}

}  // namespace trivet::data
