#include "data/tokenizers/sentencepiece_file.h"

#include <fmt/format.h>

#include <cmath>

#include "core/utf8.h"
#include "data/data_error.h"
#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/protobuf.h"

namespace trivet::data {
namespace {

constexpr size_t kMostPieces = size_t{1} << 24, kLongestPiece = kLongestSearched;

SentencePiece read_piece(std::string_view message, size_t id, const std::string& source) {
  SentencePiece piece;
  ProtobufReader reader(message, source);
  while (reader.next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.number();
    if (reader.field() == 3) {
      const int64_t type = reader.integer();
      if (type < 1 || type > 6) bad_file(source, fmt::format("piece {} is of type {}; use 1 to 6", id, type));
      piece.type = static_cast<PieceType>(type);
    }
  }
  if (piece.text.empty() || piece.text.size() > kLongestPiece || !is_utf8(piece.text) || !std::isfinite(piece.score))
    bad_file(source, fmt::format("piece {} is not a text of 1 to {} bytes in UTF-8 with a finite score", id, kLongestPiece));
  return piece;
}

void read_trainer(std::string_view message, SentencePieceFile& file, const std::string& source) {
  ProtobufReader reader(message, source);
  while (reader.next()) {
    if (reader.field() == 3) {
      const int64_t type = reader.integer();
      if (type != 1 && type != 2)
        bad_file(
            source,
            fmt::format("is a model of sentencepiece of type {}, which is not supported; use 1 (unigram) or 2 (BPE)", type));
      file.bpe = type == 2;
    }
    if (reader.field() == 24) file.whitespace_as_suffix = reader.flag();
    if (reader.field() == 35) file.byte_fallback = reader.flag();
    if (reader.field() == 44) file.unknown_surface = reader.bytes();
    if (file.unknown_surface.size() > kLongestPiece)
      bad_file(source, fmt::format("the text of its unknown piece has {} bytes; at most {} are accepted",
                                   file.unknown_surface.size(), kLongestPiece));
  }
}

void read_normalizer_spec(std::string_view message, SentencePieceFile& file, const std::string& source) {
  ProtobufReader reader(message, source);
  while (reader.next()) {
    if (reader.field() == 2) file.charsmap = reader.bytes();
    if (reader.field() == 3) file.add_dummy_prefix = reader.flag();
    if (reader.field() == 4) file.remove_extra_whitespaces = reader.flag();
    if (reader.field() == 5) file.escape_whitespaces = reader.flag();
  }
}

void check_types(SentencePieceFile& file, const std::string& source) {
  int bytes = 0;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const PieceType type = file.pieces[id].type;
    bytes += type == PieceType::Byte;
    if (type == PieceType::Unused && file.bpe)
      bad_file(source,
               fmt::format("piece {} of a BPE model is unused, which is not supported; use a model without unused pieces", id));
    if (type != PieceType::Unknown) continue;
    if (file.unknown >= 0) bad_file(source, fmt::format("pieces {} and {} are both unknown; use one", file.unknown, id));
    file.unknown = static_cast<int32_t>(id);
  }
  if (file.unknown < 0) bad_file(source, "is a model of sentencepiece without an unknown piece");
  if (file.byte_fallback && bytes != 256)
    bad_file(source, fmt::format("has byte_fallback and pieces for {} bytes; use 256", bytes));
}

}  // namespace

// The first field is a piece, whose first field is its text.
bool looks_like_sentencepiece(std::string_view bytes) { return bytes.size() > 4 && bytes[0] == '\n' && bytes[2] == '\n'; }

SentencePieceFile read_sentencepiece(std::string_view bytes, const std::string& source) {
  SentencePieceFile file;
  ProtobufReader reader(bytes, source);
  while (reader.next()) {
    if (reader.field() == 1) file.pieces.push_back(read_piece(reader.bytes(), file.pieces.size(), source));
    if (reader.field() == 2) read_trainer(reader.bytes(), file, source);
    if (reader.field() == 3) read_normalizer_spec(reader.bytes(), file, source);
    if (file.pieces.size() > kMostPieces) bad_file(source, fmt::format("has more than {} pieces", kMostPieces));
  }
  check_types(file, source);
  return file;
}

}  // namespace trivet::data
