// Turns the messages of a conversation into one text. These are the templates that models publish (chat_template in Hugging
// Face's tokenizer_config.json), written out; a template in Jinja is a program and is not read.
//
//   chatml    <|im_start|>ROLE\nCONTENT<|im_end|>\n                             for each message
//   llama-2   <s>[INST] CONTENT [/INST] ANSWER </s>                             for each question and answer; a system message
//             goes in front of the first question: <<SYS>>\nCONTENT\n<</SYS>>\n\n
//   llama-3   <|begin_of_text|>, then <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>    for each message
//
// The loss counts what the assistant says and the token that ends it, unless the message is not to be learned; everything else
// is ignored.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/document.h"
#include "data/options.h"

namespace trivet::data {

class Tokenizer;

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  bool learned = true;  // for the assistant's messages
};

// Throws DataError if the template has no place for the messages in this order.
Document render(ChatTemplate chat_template, std::span<const Message> messages);

// The conversation, followed by what comes before an answer of the assistant: what a model reads that is to write the answer.
// Throws DataError if the template has no place for an answer after these messages.
Document render_for_answer(ChatTemplate chat_template, std::span<const Message> messages);

// The special token that ends what the assistant says.
std::string end_of_answer(ChatTemplate chat_template);

// The special tokens that a template writes. The [INST] and [/INST] of llama-2 are not among them: they are letters in the
// vocabularies of Llama 2, and special tokens in those of Mistral since its version 0.3.
std::vector<std::string> special_tokens_of(ChatTemplate chat_template);
// One note for each of them that the vocabulary does not have.
std::vector<std::string> notes_on_template(ChatTemplate chat_template, const Tokenizer& tokenizer);

}  // namespace trivet::data
