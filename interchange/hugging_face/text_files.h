// Writes what programs that generate text need to know about an exported model: which tokens begin and end a text, and how a
// conversation becomes one. These are keys of config.json, generation_config.json and tokenizer_config.json, and a chat
// template in Jinja.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "data/options.h"

namespace trivet::hugging_face {

struct TextTokens {
  std::string begin, end;  // as the tokenizer calls them; "": none
  int32_t begin_id = -1;
  std::vector<int32_t> end_ids;  // the id of `end`, then others that end a text, too
};

// Returns the tokens of a model that was trained with this tokenizer (the text of Tokenizer::to_text) and this
// template. An answer ends with the token of the template, a text with the one that the tokenizer has for it.
TextTokens text_tokens_of(const std::string& tokenizer, ChatTemplate chat_template);

// The template as transformers evaluates it: the texts are those of data::render. "": None.
std::string jinja_of(ChatTemplate chat_template);

// Sets bos_token_id and eos_token_id.
void write_token_ids(const TextTokens& tokens, nlohmann::ordered_json& json);
std::string generation_config_text(const TextTokens& tokens);
// `tokenizer_file`: "tokenizer.json" or "tokenizer.model".
std::string tokenizer_config_text(const TextTokens& tokens, const std::string& tokenizer_file, ChatTemplate chat_template,
                                  int64_t sequence_length);

// What becomes of the chat template of an original model. Stays: it may do more (tools) and write other tokens than the
// training.
enum class TemplateOfOriginal : uint8_t { Replaced, ReplacedByFlag, Stays };

// Changes the files of an original model, by name, after a training with this template: the token that ends an answer is among
// those at which its generation stops, and its chat template is that of the training. Returns what was changed and what is
// missing, one sentence each.
std::vector<std::string> adapt_to_template(const TextTokens& tokens, ChatTemplate chat_template, TemplateOfOriginal original,
                                           std::string& config_json, std::map<std::string, std::string>& files);
// Returns a sentence if the tokenizer has no token that ends the answers of the template.
std::string lacks_end_of_answer(const TextTokens& tokens, ChatTemplate chat_template);

// Returns which of our templates the folder of a model has, exact to the character. None: it has another one, or none.
ChatTemplate chat_template_in(FileSystem& files, const std::string& folder);
// Returns which of our templates uses the tokens that the folder's template writes. None: none or several of ours do, or it
// writes other marks, too, such as <|im_sep|> of Phi-4.
ChatTemplate likely_template_in(FileSystem& files, const std::string& folder);

// A template whose special tokens this tokenizer has; None: there is none.
ChatTemplate template_with_tokens_of(const std::string& tokenizer);

}  // namespace trivet::hugging_face
