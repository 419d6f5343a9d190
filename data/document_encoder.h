// Turns documents into tokens.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/document.h"
#include "data/encoded_piece.h"
#include "data/encoded_text.h"
#include "data/json_lines.h"
#include "data/text_pieces.h"
#include "data/tokenizer.h"

namespace trivet::data {

struct EncoderOptions {
  LineKind lines = LineKind::Text;  // with Pair, the documents of a text are pairs, and only lines of JSON are accepted
  ChatTemplate chat_template = ChatTemplate::None;
  bool end_of_each_text = false;  // also after texts; completions end with the token if the vocabulary has it
  // Special tokens are recognized in all texts, the end of a text ends a document there, and the tokenizer's frame is put
  // around each text but conversations.
  bool special_tokens = false;
};

// Any number of threads may use one.
class DocumentEncoder {
 public:
  DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, const EncoderOptions& options);

  // Adds one document.
  void add(const Document& document, EncodedText& out) const;
  // Errors name the input, and the line or the byte at which the piece starts.
  EncodedText encode(const InputPiece& piece) const;

 private:
  void add_text(std::string_view text, bool ignored, EncodedText& out) const;
  void add_texts(std::span<const TextPart> parts, bool begins, EncodedText& out) const;
  void note_marks(std::string_view text, EncodedText& out) const;
  void end_text(EncodedText& out) const;
  void add_ids(std::span<const int32_t> ids, bool ignored, EncodedText& out) const;

  void note_begin(EncodedText& out, size_t first) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool special_tokens_;
  bool encodes_parts_alone_;
  std::vector<std::string> ends_;   // the names of tokens that end a document in a text
  std::vector<std::string> marks_;  // other tokens that texts of conversations hold
  LineOptions line_options_;
};

// Calls work(text, special) for all texts in the inputs, in pieces that end where words or documents end. Special tokens of the
// chat template are `special` texts.
void for_each_text(TextPieces& pieces, ChatTemplate chat_template,
                   const std::function<void(std::string_view text, bool special)>& work, LineKind lines = LineKind::Text);

// Calls work(document) for each document of such a piece. Errors name the input and the line. Adds keys that are not read to
// `facts`, if it is given.
void for_each_document(const InputPiece& piece, const LineOptions& options, const std::function<void(const Document&)>& work,
                       LineFacts* facts = nullptr);

}  // namespace trivet::data
