// The two ways in which a model of sentencepiece splits normalized text into pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_trie.h"
#include "data/tokenizers/sentencepiece_file.h"

namespace trivet::data {

class Segmentation {
 public:
  virtual ~Segmentation() = default;
  virtual void encode(std::string_view normalized, std::vector<int32_t>& ids) const = 0;
};

// The path whose pieces have the largest sum of scores.
std::unique_ptr<Segmentation> unigram_segmentation(const SentencePieceFile& file);
// Two neighbours are joined if they make a piece, the piece with the highest score first, leftmost first.
std::unique_ptr<Segmentation> bpe_segmentation(const SentencePieceFile& file);

// The parts of both.

inline bool is_text_piece(const SentencePiece& piece) {
  return piece.type == PieceType::Normal || piece.type == PieceType::UserDefined || piece.type == PieceType::Unused;
}

// Pieces that are recognized in the text before anything else.
ByteTrie user_defined(const SentencePieceFile& file);

// The ids of an unknown character, with which `ids` may end already.
class Unknowns {
 public:
  explicit Unknowns(const SentencePieceFile& file);
  void append(std::string_view character, std::vector<int32_t>& ids) const;
  int32_t id() const { return id_; }

 private:
  int32_t id_;
  std::vector<int32_t> bytes_;
};

}  // namespace trivet::data
