#include "engine/data/text_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "engine/data/data_error.h"
#include "engine/data/json_lines.h"
#include "engine/data/text_file.h"
#include "engine/data/unpacked_file.h"
#include "engine/data/word_split.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

std::string without_packing(const std::string& path) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) return path.substr(0, path.size() - packed.size());
  return path;
}

bool is_text_of_folder(const std::string& path) {
  const std::string name = without_packing(path);
  constexpr std::array<std::string_view, 3> kTexts{".txt", ".text", ".md"};
  return is_json_lines(path) || std::ranges::any_of(kTexts, [&](std::string_view end) { return name.ends_with(end); });
}

std::vector<std::string> texts_of_folder(const std::string& folder, int64_t& left_out) {
  std::vector<std::string> found;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    if (is_text_of_folder(entry->path().string()))
      found.push_back(entry->path().string());
    else
      ++left_out;
  }
  if (error) bad_file(folder, "cannot be read: " + error.message());
  if (found.empty())
    bad_file(folder,
             "is a folder without texts; their names end with .txt, .text, .md, .jsonl or .ndjson, and may then end with "
             ".gz or .zst");
  std::ranges::sort(found);
  return found;
}

// The longest part of `text` that ends a line, or all of it if it is the rest of the file.
size_t line_bytes(std::string_view text, size_t limit, bool is_rest) {
  const size_t end = text.substr(0, limit).rfind('\n');
  if (end != std::string_view::npos) return end + 1;
  const size_t next = text.find('\n', std::min(limit, text.size()));
  if (next != std::string_view::npos) return next + 1;
  return is_rest ? text.size() : 0;
}

}  // namespace

bool is_json_lines(const std::string& path) {
  const std::string name = without_packing(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

void refuse_unread_format(const std::string& path) {
  struct Format {
    std::string_view end, message;
  };
  constexpr std::string_view kPacked = "is not read; unpack it, or pack the text with gzip or zstd";
  constexpr std::string_view kColumns =
      "is not read; write it as lines of JSON, as in datasets.load_dataset(...).to_json(\"data.jsonl\")";
  static constexpr std::array<Format, 12> kFormats{{{".parquet", kColumns},
                                                    {".arrow", kColumns},
                                                    {".feather", kColumns},
                                                    {".npz", "is not read; save one array of ids with numpy.save"},
                                                    {".pt", "is not read; save the ids with numpy.save"},
                                                    {".zip", kPacked},
                                                    {".tar", kPacked},
                                                    {".tar.gz", kPacked},
                                                    {".tgz", kPacked},
                                                    {".tar.zst", kPacked},
                                                    {".bz2", kPacked},
                                                    {".xz", kPacked}}};
  for (const Format& format : kFormats)
    if (path.ends_with(format.end)) bad_file(path, fmt::format("the format {} {}", format.end, format.message));
}

std::vector<std::string> texts_of(const std::vector<std::string>& inputs, int64_t& left_out) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (!fs::is_directory(input, ignored)) {
      files.push_back(input);
      continue;
    }
    const std::vector<std::string> found = texts_of_folder(input, left_out);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

size_t cut_at_words(std::string_view text, size_t limit) { return piece_bytes(text, limit); }

struct TextPieces::State {
  std::vector<std::string> inputs;
  size_t piece_bytes = 0;
  CutText cut_text;
  size_t input = 0;  // the one that `file` reads, or the next one
  std::optional<UnpackedFile> file;
  bool at_end = false;                          // of the file
  std::string buffer;                           // read, but not given out
  int64_t lines = 0, bytes = 0, all_bytes = 0;  // given out: of the file, and of all

  void open_next() {
    refuse_unread_format(inputs[input]);
    file.emplace(inputs[input]);
    at_end = false;
    lines = bytes = 0;
  }

  void read_until(size_t size) {
    while (!at_end && buffer.size() < size) at_end = !file->append(buffer, size - buffer.size());
  }

  // How much of the buffer is the next piece; reads as much as is needed to know.
  size_t next_bytes(bool is_lines) {
    for (size_t wanted = piece_bytes + 1;; wanted *= 2) {
      read_until(wanted);
      const size_t found = is_lines ? line_bytes(buffer, piece_bytes, at_end) : cut_text(buffer, piece_bytes);
      const bool is_certain = at_end || (is_lines ? found > 0 : found < buffer.size());
      if (is_certain) return found;
      if (!is_lines && buffer.size() > static_cast<size_t>(kMaxTextBytes))
        bad_file(inputs[input],
                 fmt::format("has more than {} bytes in a piece that the tokenizer encodes as a whole, the maximum; "
                             "write the text as several files",
                             kMaxTextBytes));
      if (is_lines && buffer.size() > static_cast<size_t>(kMaxLineBytes))
        bad_file(inputs[input], fmt::format("line {} has more than {} bytes, the maximum", lines + 1, kMaxLineBytes));
    }
  }
};

TextPieces::TextPieces(std::vector<std::string> inputs, size_t piece_bytes, CutText cut_text)
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
  const std::string& path = state.inputs[state.input];
  const bool lines = is_json_lines(path);
  const size_t count = state.next_bytes(lines);
  if (count == state.buffer.size()) state.read_until(count + 1);  // is it the last piece?
  if (count == 0 && state.bytes == 0) bad_file(path, "is empty");
  piece = {.path = path,
           .text = state.buffer.substr(0, count),
           .lines = lines,
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
