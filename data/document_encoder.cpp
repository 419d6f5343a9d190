#include "data/document_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/chat_template.h"
#include "data/data_error.h"

namespace trivet::data {
namespace {

LineOptions line_options(const Tokenizer& tokenizer, const EncoderOptions& options) {
  LineOptions result{.kind = options.lines,
                     .chat_template = options.chat_template,
                     .end_of_text = end_of_text_of(tokenizer),
                     .end_of_each_text = options.end_of_each_text};
  if (!options.special_tokens) return result;
  result.frame = tokenizer.frame();
  const bool frame_ends_text =
      !result.frame.after.empty() && result.frame.after.back() == tokenizer.special_id(result.end_of_text);
  if (frame_ends_text) result.end_of_text.clear();
  return result;
}

// Adds to errors of `work` where they occurred, and a note.
template <typename Work>
void naming_place(const std::string& place, Work work, std::string_view note = "") {
  try {
    work();
  } catch (const DataError& error) {
    throw DataError(error.exit_code(), fmt::format("{}: {}{}", place, error.what(), note));
  }
}

// A file that is read as JSON because it begins so, and not because of its name, may be meant as a text.
std::string_view note_on(const InputPiece& piece) {
  if (is_called_json(piece.path)) return "";
  return "; it begins as JSON does: to read it as a text, set data.read_as to \"text\" (--read-as text of `trivet data "
         "prepare`)";
}

// A pair is two documents, so none of them may vanish; and a token is asked for only if one comes before it.
void check_answer(const EncodedText& text, size_t documents_before) {
  if (text.document_ends.size() == documents_before) throw DataError(ExitCode::Usage, "an answer has no token");
  const int64_t begin = documents_before == 0 ? 0 : text.document_ends[documents_before - 1];
  const auto counts = [](uint8_t ignored) { return ignored == 0; };
  const bool ignores_some = !text.ignored.empty();
  const bool asks = ignores_some ? std::any_of(text.ignored.begin() + begin + 1, text.ignored.end(), counts)
                                 : text.document_ends.back() - begin > 1;
  if (!asks)
    throw DataError(
        ExitCode::Usage,
        "an answer has no token that the model could be asked for: with an empty prompt, and in a vocabulary without "
        "an end of text, it needs two");
}

// Checks whether the loss counts any of the tokens from this one on.
bool counts_some_after(const EncodedText& text, size_t first) {
  if (text.ignored.empty()) return first < text.ids.size();
  return std::find(text.ignored.begin() + static_cast<std::ptrdiff_t>(first), text.ignored.end(), 0) != text.ignored.end();
}

// Each of these tokens ends a document.
void add_ends_after(const std::vector<int32_t>& tokens, EncodedText& text, size_t first) {
  for (size_t i = first; i < text.ids.size(); ++i)
    if (std::ranges::find(tokens, text.ids[i]) != tokens.end()) text.document_ends.push_back(static_cast<int64_t>(i) + 1);
}

std::vector<int32_t> ids_of(const std::vector<std::string>& names, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& name : names) ids.push_back(tokenizer.special_id(name));
  return ids;
}

bool ends_with_document(const EncodedText& text) {
  return !text.document_ends.empty() && text.document_ends.back() == static_cast<int64_t>(text.ids.size());
}

int64_t count_of(std::string_view part, std::string_view text) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Returns the marks of templates that the tokenizer has tokens for, and what ends its texts.
std::vector<std::string> marks_of_conversations(const Tokenizer& tokenizer, const std::vector<std::string>& ends) {
  std::vector<std::string> names{end_of_text_of(tokenizer)};
  for (const ChatTemplate chat_template : {ChatTemplate::ChatMl, ChatTemplate::Llama3})
    for (const std::string& name : special_tokens_of(chat_template)) names.push_back(name);
  std::vector<std::string> marks;
  for (const std::string& name : names) {
    const bool is_known = std::ranges::find(ends, name) != ends.end() || std::ranges::find(marks, name) != marks.end();
    if (!name.empty() && !is_known && tokenizer.special_id(name) >= 0) marks.push_back(name);
  }
  return marks;
}

// Marks that are not among the special tokens are a part of the text around them.
void for_each_text_of(const Document& document, const std::vector<std::string>& special,
                      const std::function<void(std::string_view text, bool special)>& work) {
  std::string text;
  bool ignored = false, after_mark = false;
  const auto flush = [&] {
    if (!text.empty()) work(text, false);
    text.clear();
  };
  for (const DocumentPart& part : document) {
    const bool is_token = part.special && std::ranges::find(special, part.text) != special.end();
    const bool is_mark = part.special && !is_token;
    if (is_token || part.ignored != ignored || !(is_mark || after_mark)) flush();
    ignored = part.ignored;
    after_mark = is_mark;
    if (is_token)
      work(part.text, true);
    else
      text += part.text;
  }
  flush();
}

std::string place_of(const InputPiece& piece) {
  if (piece.first_byte == 0) return piece.path;
  return fmt::format("{}: in the piece that starts at byte {}", piece.path, piece.first_byte);
}

}  // namespace

DocumentEncoder::DocumentEncoder(std::shared_ptr<const Tokenizer> tokenizer, const EncoderOptions& options)
    : tokenizer_(std::move(tokenizer)),
      special_tokens_(options.special_tokens),
      encodes_parts_alone_(!has_special_tokens(*tokenizer_)),
      ends_(ends_of_documents(*tokenizer_)),
      marks_(marks_of_conversations(*tokenizer_, ends_)),
      line_options_(line_options(*tokenizer_, options)) {}

void DocumentEncoder::add_ids(std::span<const int32_t> ids, bool ignored, EncodedText& out) const {
  if (ignored || !out.ignored.empty()) {
    out.ignored.resize(out.ids.size());
    out.ignored.resize(out.ids.size() + ids.size(), ignored ? 1 : 0);
  }
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
}

void DocumentEncoder::note_marks(std::string_view text, EncodedText& out) const {
  if (special_tokens_) return;
  for (const std::string& end : ends_) out.facts.add_mark(end, {count_of(end, text), true});
  for (const std::string& mark : marks_) out.facts.add_mark(mark, {count_of(mark, text), false});
}

void DocumentEncoder::add_text(std::string_view text, bool ignored, EncodedText& out) const {
  if (text.empty()) return;
  note_marks(text, out);
  add_ids(special_tokens_ ? tokenizer_->encode_with_special(text) : tokenizer_->encode(text), ignored, out);
}

// The parts follow each other without a special token. Tokenizers encode them as one text, as other programs do; bytes and
// characters are the same one by one.
void DocumentEncoder::add_texts(std::span<const TextPart> parts, bool begins, EncodedText& out) const {
  if (encodes_parts_alone_) {
    for (const TextPart& part : parts) add_text(part.text, part.ignored, out);
    return;
  }
  for (const TextPart& part : parts) note_marks(part.text, out);
  const EncodedPiece piece = encode_parts(*tokenizer_, parts, {.special = special_tokens_, .begins = begins});
  size_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (piece.ends[i] == begin) continue;
    add_ids(std::span(piece.ids).subspan(begin, piece.ends[i] - begin), parts[i].ignored, out);
    begin = piece.ends[i];
  }
}

// Counts a text that begins with the token that the tokenizer's frame puts there. `first`: where its ids begin, with the frame.
void DocumentEncoder::note_begin(EncodedText& out, size_t first) const {
  const std::vector<int32_t>& before = line_options_.frame.before;
  const size_t text = first + before.size();
  if (before.empty() || out.ids.size() <= text || out.ids[text] != before.back() || out.ids[text - 1] != before.back()) return;
  ++out.facts.begun_twice[tokenizer_->token_name(before.back())];
}

// Texts without a special token between them go to add_texts together.
void DocumentEncoder::add(const Document& document, EncodedText& out) const {
  std::vector<TextPart> texts;
  bool begins = true;
  const auto flush = [&] {
    if (!texts.empty()) add_texts(texts, begins, out);
    texts.clear();
  };
  const size_t first = out.ids.size();
  for (const DocumentPart& part : document) {
    const int32_t id = part.special ? tokenizer_->special_id(part.text) : -1;
    if (id >= 0 && part.text == line_options_.end_of_text) {
      flush();
      if (out.ids.size() > first && out.ids.back() == id) continue;  // the text ended with it
    }
    const std::span<const int32_t> ids = id >= 0 ? std::span(&id, 1) : std::span(part.ids);
    if (ids.empty()) {
      if (texts.empty() || texts.back().ignored != part.ignored) texts.push_back({"", part.ignored, part.apart});
      texts.back().text += part.text;
      continue;
    }
    flush();
    add_ids(ids, part.ignored, out);
    begins = begins && id < 0;
  }
  flush();
  note_begin(out, first);
  const auto end = static_cast<int64_t>(out.ids.size());
  if (end > (out.document_ends.empty() ? 0 : out.document_ends.back())) out.document_ends.push_back(end);
}

// Ends a text, but not twice if a document has just ended at its end.
void DocumentEncoder::end_text(EncodedText& out) const {
  const bool has_ended = ends_with_document(out);
  if (has_ended) out.document_ends.pop_back();
  add_ids(line_options_.frame.after, false, out);
  const int32_t id = tokenizer_->special_id(line_options_.end_of_text);
  if (id >= 0 && line_options_.end_of_each_text && !has_ended) add_ids(std::span(&id, 1), false, out);
  out.document_ends.push_back(static_cast<int64_t>(out.ids.size()));
}

EncodedText DocumentEncoder::encode(const InputPiece& piece) const {
  EncodedText out;
  if (piece.lines) {
    const auto add_document = [&](const Document& document) {
      const size_t before = out.document_ends.size(), tokens_before = out.ids.size();
      add(document, out);
      if (line_options_.kind == LineKind::Pair) return check_answer(out, before);
      if (out.document_ends.size() == before) return;  // an empty text
      ++out.facts.documents;
      if (!counts_some_after(out, tokens_before)) ++out.facts.without_targets;
    };
    for_each_document(piece, line_options_, add_document, &out.facts);
    return out;
  }
  if (line_options_.kind == LineKind::Pair)
    bad_file(
        piece.path,
        "is a text, which has no pairs of answers; use lines of JSON (.jsonl) with \"prompt\", \"chosen\" and \"rejected\"");
  if (piece.begins_document) add_ids(line_options_.frame.before, false, out);
  const size_t first = out.ids.size();
  naming_place(place_of(piece), [&] { add_text(piece.text, false, out); });
  if (piece.begins_document) note_begin(out, 0);
  if (special_tokens_) add_ends_after(ids_of(ends_, *tokenizer_), out, first);
  if (!piece.ends_document) return out;
  end_text(out);
  return out;
}

void for_each_text(TextPieces& pieces, ChatTemplate chat_template,
                   const std::function<void(std::string_view text, bool special)>& work, LineKind lines) {
  const std::vector<std::string> special = special_tokens_of(chat_template);
  for (InputPiece piece; pieces.next(piece);) {
    if (piece.lines)
      for_each_document(piece, {.kind = lines, .chat_template = chat_template},
                        [&](const Document& document) { for_each_text_of(document, special, work); });
    else
      naming_place(place_of(piece), [&] { work(piece.text, false); });
  }
}

void for_each_document(const InputPiece& piece, const LineOptions& options, const std::function<void(const Document&)>& work,
                       LineFacts* facts) {
  int64_t number = piece.first_line;
  for (std::string_view rest = piece.text; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto add = [&] {
      for (const Document& document : documents_of_line(line, options, facts)) work(document);
    };
    naming_place(fmt::format("{}: {} {}", piece.path, piece.objects ? "object" : "line", number), add, note_on(piece));
  }
}

}  // namespace trivet::data
