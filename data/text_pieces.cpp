#include "data/text_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "data/data_error.h"
#include "data/json_lines.h"
#include "data/json_objects.h"
#include "data/text_check.h"
#include "data/text_file.h"
#include "data/unpacked_file.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

// The longest part of `text` that ends a line, or all of it if it is the rest of the file.
size_t line_bytes(std::string_view text, size_t limit, bool is_rest) {
  const size_t end = text.substr(0, limit).rfind('\n');
  if (end != std::string_view::npos) return end + 1;
  const size_t next = text.find('\n', std::min(limit, text.size()));
  if (next != std::string_view::npos) return next + 1;
  return is_rest ? text.size() : 0;
}

}  // namespace

size_t cut_at_words(std::string_view text, size_t limit) { return piece_bytes(text, limit); }

size_t cut_at_characters(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  size_t end = limit;
  while (end > 0 && limit - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end == 0 ? limit : end;
}

struct TextPieces::State {
  std::vector<InputFile> inputs;
  size_t piece_bytes = 0;
  CutText cut_text;
  size_t input = 0;  // the one that `file` reads, or the next one
  std::optional<UnpackedFile> file;
  std::optional<JsonObjects> objects;           // for a file that does not have them on lines
  TextCheck check;                              // for a text
  bool at_end = false;                          // the file has ended
  std::string buffer;                           // read, but not given out
  int64_t lines = 0, bytes = 0, all_bytes = 0;  // given out: of the file, and of all

  void open_next() {
    const auto& [path, kind, any_bytes] = inputs[input];
    file.emplace(path);
    check = {};
    objects.reset();
    if (kind == FileKind::JsonList) objects.emplace(JsonObjects::Form::List, path);
    if (kind == FileKind::JsonSequence) objects.emplace(JsonObjects::Form::Sequence, path);
    at_end = false;
    lines = bytes = 0;
  }

  void read_until(size_t size) {
    while (!at_end && buffer.size() < size) read_more(size - buffer.size());
  }

  void read_more(size_t wanted) {
    const size_t before = buffer.size();
    if (objects) {
      std::string text;
      at_end = !file->append(text, wanted);
      objects->add(text, buffer);
      if (at_end) objects->finish();
      return;
    }
    const bool begins = file->share_read() == 0;
    at_end = !file->append(buffer, begins ? std::max(wanted, kByteOrderMark.size()) : wanted);
    if (inputs[input].kind != FileKind::Text || inputs[input].any_bytes) return;
    check_text(std::string_view(buffer).substr(before));
    if (begins && std::string_view(buffer).substr(before).starts_with(kByteOrderMark))
      buffer.erase(before, kByteOrderMark.size());
  }

  void check_text(std::string_view text) {
    check.add(text);
    if (at_end) check.finish();
    if (!check.is_text()) refuse_bytes(inputs[input].path, check.in_words());
  }

  // Returns how much of the buffer is the next piece; reads as much as is needed to know.
  size_t next_bytes(bool is_lines) {
    for (size_t wanted = piece_bytes + 1;; wanted *= 2) {
      read_until(wanted);
      const size_t found = is_lines ? line_bytes(buffer, piece_bytes, at_end) : cut_text(buffer, piece_bytes);
      const bool is_certain = at_end || (is_lines ? found > 0 : found < buffer.size());
      if (is_certain) return found;
      if (!is_lines && buffer.size() > static_cast<size_t>(kMaxTextBytes))
        bad_file(inputs[input].path,
                 fmt::format("has more than {} bytes in a piece that the tokenizer encodes as a whole, the maximum; "
                             "write the text as several files",
                             kMaxTextBytes));
      if (is_lines && buffer.size() > static_cast<size_t>(kMaxLineBytes))
        bad_file(inputs[input].path, fmt::format("{} {} has more than {} bytes, the maximum", objects ? "object" : "line",
                                                 lines + 1, kMaxLineBytes));
    }
  }
};

TextPieces::TextPieces(std::vector<InputFile> inputs, size_t piece_bytes, CutText cut_text)
    : state_(std::make_unique<State>()) {
  state_->inputs = std::move(inputs);
  state_->piece_bytes = piece_bytes;
  state_->cut_text = std::move(cut_text);
}

TextPieces::~TextPieces() = default;

bool TextPieces::next(InputPiece& piece) {
  State& state = *state_;
  if (!state.file) {
    if (state.input == state.inputs.size()) return false;
    state.open_next();
  }
  const std::string& path = state.inputs[state.input].path;
  const bool lines = is_json(state.inputs[state.input].kind);
  const size_t count = state.next_bytes(lines);
  if (count == state.buffer.size()) state.read_until(count + 1);  // is it the last piece?
  if (count == 0 && state.bytes == 0) bad_file(path, "is empty");
  piece = {.path = path,
           .text = state.buffer.substr(0, count),
           .lines = lines,
           .objects = state.objects.has_value(),
           .begins_document = !lines && state.bytes == 0,
           .ends_document = !lines && state.at_end && count == state.buffer.size(),
           .first_line = state.lines + 1,
           .first_byte = state.bytes};
  state.buffer.erase(0, count);
  state.bytes += static_cast<int64_t>(count);
  state.all_bytes += static_cast<int64_t>(count);
  state.lines += std::ranges::count(piece.text, '\n');
  if (state.at_end && state.buffer.empty()) {
    state.file.reset();
    ++state.input;
  }
  return true;
}

int64_t TextPieces::bytes() const { return state_->all_bytes; }

double TextPieces::share_read() const {
  const double of_file = state_->file ? state_->file->share_read() : 0;
  return (static_cast<double>(state_->input) + of_file) / static_cast<double>(state_->inputs.size());
}

}  // namespace trivet::data
