// The inputs of a preparation, in pieces that can be encoded one by one: texts, lines of JSON, and folders of both, unpacked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trivet::data {

struct TextPiece {
  std::string path;  // of the input
  std::string text;
  bool lines = false;          // each line is a document in JSON (json_lines.h), and no line is cut
  bool ends_document = false;  // a text ends here
  int64_t first_line = 1;      // of lines
  int64_t first_byte = 0;      // of a text
};

// Whether a file holds lines of JSON: NAME.jsonl or NAME.ndjson, or one of these with .gz or .zst.
bool is_json_lines(const std::string& path);

// Throws DataError for a format that is not read, known by the end of its name, and says what to do with it.
void refuse_unread_format(const std::string& path);

// The inputs with each folder replaced by the texts and lines of JSON in it and in its folders, in the order of their paths.
// Throws DataError for a folder without any. `left_out` counts the other files of folders.
std::vector<std::string> texts_of(const std::vector<std::string>& inputs, int64_t& left_out);

// Reads the inputs, which must be files, one after the other. Pieces of texts end where words end, and pieces of lines where
// lines end. Throws DataError for a file that cannot be read, or is empty.
class TextPieces {
 public:
  TextPieces(std::vector<std::string> inputs, size_t piece_bytes);
  ~TextPieces();
  TextPieces(const TextPieces&) = delete;
  TextPieces& operator=(const TextPieces&) = delete;

  // Returns false after the last piece.
  bool next(TextPiece& piece);
  int64_t bytes() const;  // of text that was given out
  // Which part of the inputs has been read, from 0 to 1.
  double share_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
