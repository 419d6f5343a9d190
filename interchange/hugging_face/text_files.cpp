#include "interchange/hugging_face/text_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"
#include "core/enum_names.h"
#include "data/chat_template.h"
#include "data/tokenizer.h"
#include "interchange/hugging_face/architecture.h"

namespace trivet::hugging_face {
namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr const char* kLlama2 =
    "{% set system = '' %}{% set turns = messages %}{% if messages[0]['role'] == 'system' %}"
    "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set turns = messages[1:] %}{% endif %}"
    "{% for message in turns %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('messages of user and assistant must take turns') }}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ '<s>[INST] ' + ((system if loop.first else '') + message['content']).strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'].strip() + ' </s>' }}{% endif %}{% endfor %}";
constexpr const char* kLlama3 =
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'].strip() + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTemplateKey = "chat_template";  // in tokenizer_config.json

OrderedJson ids_as_json(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? OrderedJson(ids[0]) : OrderedJson(ids);
}

bool names_id(const OrderedJson& json, int32_t id) {
  const auto found = json.find("eos_token_id");
  if (found == json.end()) return false;
  return found->is_array() ? std::find(found->begin(), found->end(), OrderedJson(id)) != found->end() : *found == id;
}

// Puts the id in front of those at which generation stops.
void stop_at(OrderedJson& json, int32_t id) {
  OrderedJson ids = OrderedJson::array({id});
  if (const auto found = json.find("eos_token_id"); found != json.end() && !found->is_null())
    for (const OrderedJson& other : found->is_array() ? *found : OrderedJson::array({*found})) ids.push_back(other);
  json["eos_token_id"] = ids.size() == 1 ? ids[0] : ids;
}

std::string text_of(const OrderedJson& json) { return json.dump(2) + "\n"; }

OrderedJson object_in(const std::map<std::string, std::string>& files, const std::string& name) {
  const auto found = files.find(name);
  const bool usable = found != files.end() && json_excess(found->second, {.levels = 64}).empty();
  OrderedJson json = usable ? OrderedJson::parse(found->second, nullptr, false) : OrderedJson();
  return json.is_object() ? json : OrderedJson::object();
}

// "": none is stated, or several.
std::string template_of(const OrderedJson& tokenizer_config) {
  const auto found = tokenizer_config.find(kTemplateKey);
  return found != tokenizer_config.end() && found->is_string() ? found->get<std::string>() : "";
}

// Checks whether a template has marks such as <|im_sep|> that are not among these, nor those of texts and tools.
bool has_other_marks(const std::string& jinja, const std::vector<std::string>& ours) {
  constexpr std::array<std::string_view, 4> kElsewhere{"<|endoftext|>", "<|begin_of_text|>", "<|python_tag|>", "<|eom_id|>"};
  for (size_t at = jinja.find("<|"); at != std::string::npos; at = jinja.find("<|", at + 1)) {
    const size_t end = jinja.find("|>", at);
    if (end == std::string::npos) return false;
    const std::string mark = jinja.substr(at, end + 2 - at);
    if (std::ranges::find(ours, mark) == ours.end() && std::ranges::find(kElsewhere, mark) == kElsewhere.end()) return true;
  }
  return false;
}

// Checks whether a template writes the special tokens of ours, and no others.
bool writes_tokens_of(const std::string& jinja, ChatTemplate chat_template) {
  const std::vector<std::string> names = data::special_tokens_of(chat_template);
  const bool brackets = chat_template == ChatTemplate::Llama2;  // others have its <s> as bos_token
  if (brackets) return jinja.find("[INST]") != std::string::npos && jinja.find("<<SYS>>") != std::string::npos;
  if (has_other_marks(jinja, names)) return false;
  return std::ranges::all_of(
      names, [&](const std::string& name) { return name == "<|begin_of_text|>" || jinja.find(name) != std::string::npos; });
}

constexpr std::array kOurs{ChatTemplate::ChatMl, ChatTemplate::Llama2, ChatTemplate::Llama3};

// "": the folder has none, or several.
std::string template_in(FileSystem& files, const std::string& folder) {
  constexpr int64_t kLimitBytes = int64_t{16} << 20;
  constexpr const char* kTokenizerConfig = "tokenizer_config.json";
  std::map<std::string, std::string> texts;
  for (const char* name : {kTemplateFile, kTokenizerConfig})
    if (const std::string path = folder + "/" + name; files.kind(path) == EntryKind::File)
      texts[name] = read_text(files, path, kLimitBytes);
  return texts.contains(kTemplateFile) ? texts[kTemplateFile] : template_of(object_in(texts, kTokenizerConfig));
}

}  // namespace

TextTokens text_tokens_of(const std::string& text, ChatTemplate chat_template) {
  TextTokens tokens;
  if (text.empty()) return tokens;
  const auto tokenizer = data::tokenizer_from_text(text, "the tokenizer in the checkpoint");
  const auto add_end = [&](const std::string& name) {
    const int32_t id = name.empty() ? -1 : tokenizer->special_id(name);
    if (id < 0 || std::ranges::find(tokens.end_ids, id) != tokens.end_ids.end()) return;
    if (tokens.end.empty()) tokens.end = name;
    tokens.end_ids.push_back(id);
  };
  if (chat_template != ChatTemplate::None) add_end(data::end_of_answer(chat_template));
  add_end(data::end_of_text_of(*tokenizer));
  tokens.begin = data::begin_of_text_of(*tokenizer);
  tokens.begin_id = tokens.begin.empty() ? -1 : tokenizer->special_id(tokens.begin);
  if (tokens.begin_id < 0) tokens.begin.clear();
  return tokens;
}

std::string jinja_of(ChatTemplate chat_template) {
  switch (chat_template) {
    case ChatTemplate::ChatMl: return kChatMl;
    case ChatTemplate::Llama2: return kLlama2;
    case ChatTemplate::Llama3: return kLlama3;
    case ChatTemplate::None: break;
  }
  return "";
}

ChatTemplate chat_template_in(FileSystem& files, const std::string& folder) {
  const std::string text = template_in(files, folder);
  for (const ChatTemplate ours : kOurs)
    if (text == jinja_of(ours)) return ours;
  return ChatTemplate::None;
}

ChatTemplate likely_template_in(FileSystem& files, const std::string& folder) {
  const std::string text = template_in(files, folder);
  std::vector<ChatTemplate> likely;
  for (const ChatTemplate ours : kOurs)
    if (writes_tokens_of(text, ours)) likely.push_back(ours);
  return likely.size() == 1 ? likely[0] : ChatTemplate::None;
}

void write_token_ids(const TextTokens& tokens, OrderedJson& json) {
  json["bos_token_id"] = tokens.begin_id < 0 ? OrderedJson() : OrderedJson(tokens.begin_id);
  json["eos_token_id"] = ids_as_json(tokens.end_ids);
}

std::string generation_config_text(const TextTokens& tokens) {
  OrderedJson json = OrderedJson::object();
  write_token_ids(tokens, json);
  return text_of(json);
}

std::string tokenizer_config_text(const TextTokens& tokens, const std::string& tokenizer_file, ChatTemplate chat_template,
                                  int64_t sequence_length) {
  const bool sentencepiece = tokenizer_file == "tokenizer.model";
  OrderedJson json = OrderedJson::object();
  json["tokenizer_class"] = sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast";
  if (sentencepiece) json["legacy"] = false;
  if (!tokens.begin.empty()) json["bos_token"] = tokens.begin;
  if (!tokens.end.empty()) json["eos_token"] = tokens.end;
  json["clean_up_tokenization_spaces"] = false;
  json["model_max_length"] = sequence_length;
  if (chat_template != ChatTemplate::None) json[kTemplateKey] = jinja_of(chat_template);
  return text_of(json);
}

std::string lacks_end_of_answer(const TextTokens& tokens, ChatTemplate chat_template) {
  const std::string end = data::end_of_answer(chat_template);
  return tokens.end == end
             ? ""
             : fmt::format("the tokenizer has no special token {}, with which answers of the chat template \"{}\" end", end,
                           name_of(chat_template));
}

std::vector<std::string> adapt_to_template(const TextTokens& tokens, ChatTemplate chat_template, TemplateOfOriginal original,
                                           std::string& config_json, std::map<std::string, std::string>& files) {
  std::vector<std::string> changes;
  const bool keep = original == TemplateOfOriginal::Stays;
  if (chat_template == ChatTemplate::None) {
    const bool has_one = files.contains(kTemplateFile) || object_in(files, "tokenizer_config.json").contains(kTemplateKey);
    if (has_one)
      changes.emplace_back(
          "the chat template is that of --like; the config of the run names no data.chat_template, so it may write what the "
          "training did not; --chat-template names another");
    return changes;
  }
  const char* const said_by = original == TemplateOfOriginal::ReplacedByFlag ? "--chat-template" : "data.chat_template";
  const bool is_known = !tokens.end_ids.empty();  // otherwise there was no tokenizer to look at
  if (std::string lack = lacks_end_of_answer(tokens, chat_template); is_known && !lack.empty())
    changes.push_back(std::move(lack));
  const std::string name_of_template(name_of(chat_template));
  OrderedJson of_tokenizer = object_in(files, "tokenizer_config.json");
  bool tokenizer_changed = false;
  const std::string end = data::end_of_answer(chat_template);
  OrderedJson config = OrderedJson::parse(config_json), generation = object_in(files, "generation_config.json");
  const OrderedJson& decides = generation.contains("eos_token_id") ? generation : config;
  if (tokens.end == end && !names_id(decides, tokens.end_ids[0])) {
    stop_at(config, tokens.end_ids[0]);
    config_json = text_of(config);
    if (!generation.empty()) {
      stop_at(generation, tokens.end_ids[0]);
      files["generation_config.json"] = text_of(generation);
    }
    of_tokenizer["eos_token"] = end;
    tokenizer_changed = true;
    changes.push_back(
        fmt::format("generation stops at {}, too, with which answers of data.chat_template \"{}\" end", end, name_of_template));
  }
  const std::string old = files.contains(kTemplateFile) ? files[kTemplateFile] : template_of(of_tokenizer);
  if (old != jinja_of(chat_template) && keep) {
    changes.push_back(fmt::format("the chat template is still that of --like; the training wrote its conversations with \"{}\"",
                                  name_of_template));
  } else if (old != jinja_of(chat_template)) {
    files.erase(kTemplateFile);
    of_tokenizer[kTemplateKey] = jinja_of(chat_template);
    tokenizer_changed = true;
    changes.push_back(fmt::format("the chat template is \"{}\", as {} says{}", name_of_template, said_by,
                                  old.empty() ? "" : ", instead of the one in --like; --chat-template original keeps that"));
  }
  if (tokenizer_changed) files["tokenizer_config.json"] = text_of(of_tokenizer);
  return changes;
}

ChatTemplate template_with_tokens_of(const std::string& text) {
  if (text.empty()) return ChatTemplate::None;
  const auto tokenizer = data::tokenizer_from_text(text, "the tokenizer in the checkpoint");
  for (const ChatTemplate candidate : {ChatTemplate::ChatMl, ChatTemplate::Llama3})
    if (std::ranges::all_of(data::special_tokens_of(candidate),
                            [&](const std::string& name) { return tokenizer->special_id(name) >= 0; }))
      return candidate;
  return ChatTemplate::None;
}

}  // namespace trivet::hugging_face
