// Texts and objects of JSON, unpacked, in pieces that can be encoded one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/input_files.h"

namespace trivet::data {

struct InputPiece {
  std::string path;  // the input's
  std::string text;
  bool lines = false;                                   // each line is a document in JSON (json_lines.h), and no line is cut
  bool objects = false;                                 // the lines are objects that the file does not have on lines
  bool begins_document = false, ends_document = false;  // a text begins or ends here
  int64_t first_line = 1;                               // for lines
  int64_t first_byte = 0;                               // for a text
};

// Bytes of a piece at the beginning of a text that can be encoded by itself: about `limit`, or as many as it takes. More text
// changes nothing if they are fewer than the text has.
using CutText = std::function<size_t(std::string_view text, size_t limit)>;

// Cuts where words end (word_split.h).
size_t cut_at_words(std::string_view text, size_t limit);
// Cuts between any two characters.
size_t cut_at_characters(std::string_view text, size_t limit);

// Reads the inputs one after the other. Pieces of texts end where `cut_text` says, and pieces of lines where lines end. Throws
// DataError for a file that cannot be read or is empty, and for a text that holds NUL or is not UTF-8.
class TextPieces {
 public:
  TextPieces(std::vector<InputFile> inputs, size_t piece_bytes, CutText cut_text = cut_at_words);
  ~TextPieces();
  TextPieces(const TextPieces&) = delete;
  TextPieces& operator=(const TextPieces&) = delete;

  // Returns false after the last piece.
  bool next(InputPiece& piece);
  int64_t bytes() const;  // size of the text that was given out
  // Returns the part of the inputs that has been read, from 0 to 1.
  double share_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trivet::data
