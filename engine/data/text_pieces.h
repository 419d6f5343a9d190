// The inputs of a preparation, in pieces that can be encoded one by one: texts, lines of JSON, and folders of both, unpacked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

struct InputPiece {
  std::string path;  // of the input
  std::string text;
  bool lines = false;                                   // each line is a document in JSON (json_lines.h), and no line is cut
  bool begins_document = false, ends_document = false;  // a text begins or ends here
  int64_t first_line = 1;                               // of lines
  int64_t first_byte = 0;                               // of a text
};

// Whether a file holds lines of JSON: NAME.jsonl or NAME.ndjson, or one of these with .gz or .zst.
bool is_json_lines(const std::string& path);

// Throws DataError for a format that is not read, known by the end of its name, and says what to do with it.
void refuse_unread_format(const std::string& path);

// The inputs with each folder replaced by the texts and lines of JSON in it and in its folders, in the order of their paths.
// Throws DataError for a folder without any. `left_out` counts the other files of folders.
std::vector<std::string> texts_of(const std::vector<std::string>& inputs, int64_t& left_out);

// Bytes of a piece at the beginning of a text that can be encoded by itself: about `limit`, or as many as it takes. More text
// changes nothing if they are fewer than the text has.
using CutText = std::function<size_t(std::string_view text, size_t limit)>;

// Cuts where words end (word_split.h).
size_t cut_at_words(std::string_view text, size_t limit);

// Reads the inputs, which must be files, one after the other. Pieces of texts end where `cut_text` says, and pieces of lines
// where lines end. Throws DataError for a file that cannot be read, or is empty.
class TextPieces {
 public:
  TextPieces(std::vector<std::string> inputs, size_t piece_bytes, CutText cut_text = cut_at_words);
  ~TextPieces();
  TextPieces(const TextPieces&) = delete;
  TextPieces& operator=(const TextPieces&) = delete;

  // Returns false after the last piece.
  bool next(InputPiece& piece);
  int64_t bytes() const;  // of text that was given out
  // Which part of the inputs has been read, from 0 to 1.
  double share_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
