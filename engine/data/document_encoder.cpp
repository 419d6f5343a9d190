#include "engine/data/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/data/bpe.h"
#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

LineOptions line_options(const Tokenizer& tokenizer, const EncoderOptions& options) {
  return {.chat_template = options.chat_template,
          .end_of_text = end_of_text_of(tokenizer),
          .end_of_each_text = options.end_of_each_text};
}

// Adds to errors of `work` where they occurred.
template <typename Work>
void naming_place(const std::string& place, Work work) {
  try {
    work();
  } catch (const DataError& error) {
    throw DataError(error.exit_code(), place + ": " + error.what());
  }
}

std::string place_of(const TextPiece& piece) {
  if (piece.first_byte == 0) return piece.path;
  return fmt::format("{}: in the piece that starts at byte {}", piece.path, piece.first_byte);
}

}  // namespace

std::optional<int32_t> special_id(const Tokenizer& tokenizer, std::string_view token) {
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer);
  if (!bpe) return {};
  for (const int32_t id : bpe->vocabulary().special)
    if (bpe->vocabulary().tokens[id] == token) return id;
  return {};
}

std::string end_of_text_of(const Tokenizer& tokenizer) {
  for (const std::string_view token : {kEndOfText, std::string_view("<|end_of_text|>"), std::string_view("</s>")})
    if (special_id(tokenizer, token)) return std::string(token);
  return "";
}

DocumentEncoder::DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, const EncoderOptions& options)
    : tokenizer_(std::move(tokenizer)), line_options_(line_options(*tokenizer_, options)) {}

void DocumentEncoder::add_ids(std::span<const int32_t> ids, bool ignored, EncodedText& out) const {
  if (ignored || !out.ignored.empty()) {
    out.ignored.resize(out.ids.size());
    out.ignored.resize(out.ids.size() + ids.size(), ignored ? 1 : 0);
  }
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
}

void DocumentEncoder::add_text(std::string_view text, bool ignored, EncodedText& out) const {
  if (!text.empty()) add_ids(tokenizer_->encode(text), ignored, out);
}

// Neighbouring texts are encoded as one, unless the loss ignores only one of them.
void DocumentEncoder::add(const Document& document, EncodedText& out) const {
  std::string text;
  bool ignored = false;
  const auto flush = [&] {
    add_text(text, ignored, out);
    text.clear();
  };
  for (const DocumentPart& part : document) {
    const auto id = part.special ? special_id(*tokenizer_, part.text) : std::nullopt;
    if (id || part.ignored != ignored) flush();
    ignored = part.ignored;
    if (id)
      add_ids(std::span(&*id, 1), ignored, out);
    else
      text += part.text;
  }
  flush();
  const auto end = static_cast<int64_t>(out.ids.size());
  if (end > (out.document_ends.empty() ? 0 : out.document_ends.back())) out.document_ends.push_back(end);
}

EncodedText DocumentEncoder::encode(const TextPiece& piece) const {
  EncodedText out;
  if (piece.lines) {
    for_each_document(piece, line_options_, [&](const Document& document) { add(document, out); });
    return out;
  }
  naming_place(place_of(piece), [&] { add_text(piece.text, false, out); });
  if (!piece.ends_document) return out;
  if (const auto id = special_id(*tokenizer_, line_options_.end_of_text); id && line_options_.end_of_each_text)
    add_ids(std::span(&*id, 1), false, out);
  out.document_ends.push_back(static_cast<int64_t>(out.ids.size()));
  return out;
}

void for_each_text(TextPieces& pieces, ChatTemplate chat_template,
                   const std::function<void(std::string_view text, bool special)>& work) {
  for (TextPiece piece; pieces.next(piece);) {
    if (piece.lines)
      for_each_document(piece, {.chat_template = chat_template}, [&](const Document& document) {
        for (const DocumentPart& part : document) work(part.text, part.special);
      });
    else
      naming_place(place_of(piece), [&] { work(piece.text, false); });
  }
}

void for_each_document(const TextPiece& piece, const LineOptions& options, const std::function<void(const Document&)>& work) {
  int64_t number = piece.first_line;
  for (std::string_view rest = piece.text; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    naming_place(fmt::format("{}: line {}", piece.path, number), [&] { work(document_of_line(line, options)); });
  }
}

}  // namespace trivet::data
