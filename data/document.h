// A document before it is tokenized: a text, a prompt with its completion, or a conversation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trivet::data {

// `special` names a token that no text encodes to, such as <|im_end|>. A vocabulary that has no such token takes it as text.
struct DocumentPart {
  std::string text = "";
  bool ignored = false;  // by the loss: the model reads it but is not asked to write it
  bool special = false;
  std::vector<int32_t> ids = {};  // instead of a text: tokens of the tokenizer's frame
  bool apart = false;             // no token may belong to this part and to the one before it
};

using Document = std::vector<DocumentPart>;

// The content that a line of JSON is read as.
enum class LineKind {
  Text,  // one document
  Pair   // two documents: a prompt with the answer that is preferred, and with the one that is rejected
};

}  // namespace trivet::data
