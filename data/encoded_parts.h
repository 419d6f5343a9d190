// The pieces of a preparation that are already encoded: a token file for each, in a folder next to the output. A preparation
// that was interrupted finds them again and encodes only the rest.
//
// The name of a part says which piece it is, and has a hash of the piece's text and of all that decides its tokens. So a part
// is used again only where it would be the same. The folder belongs to one preparation at a time (core/folder_claim.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/folder_claim.h"
#include "data/document_encoder.h"
#include "data/text_pieces.h"
#include "data/token_file.h"

namespace trivet::data {

class EncodedParts {
 public:
  // `settings` names all that decides tokens apart from the text and the tokenizer. Throws DataError if the folder cannot be
  // made, or another preparation uses it.
  EncodedParts(std::string folder, const Tokenizer& tokenizer, const std::string& settings, bool pairs = false);
  // Removes the folder if it is empty.
  ~EncodedParts();
  EncodedParts(const EncodedParts&) = delete;
  EncodedParts& operator=(const EncodedParts&) = delete;

  // The file of the piece with this number.
  std::string file_of(int64_t number, const InputPiece& piece) const;
  // Checks whether the file exists and is undamaged.
  static bool holds(const std::string& file);
  // Any thread may write any part.
  void write(const std::string& file, const EncodedText& text) const;
  // Adds the tokens of a part to the output. `goes_on`: what is after its last token that ends a text, which the file has as a
  // document, is the beginning of one.
  void copy(const std::string& file, bool goes_on, TokenFileWriter& output) const;
  // Removes all parts, also those of earlier preparations with other settings.
  void remove() const;

 private:
  std::string folder_;
  const Tokenizer& tokenizer_;
  std::string settings_;
  bool pairs_;
  std::optional<FolderClaim> claim_;
};

}  // namespace trivet::data
