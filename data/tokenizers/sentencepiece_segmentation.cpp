#include "data/tokenizers/sentencepiece_segmentation.h"

#include "data/tokenizers/decoders.h"

namespace trivet::data {

// Pieces that are recognized in the text before anything else.
ByteTrie user_defined(const SentencePieceFile& file) {
  ByteTrie trie;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].type == PieceType::UserDefined) trie.add(file.pieces[id].text, static_cast<int32_t>(id));
  return trie;
}

Unknowns::Unknowns(const SentencePieceFile& file) : id_(file.unknown), bytes_(file.byte_fallback ? 256 : 0) {
  if (!file.byte_fallback) return;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (const int byte = byte_of_name(file.pieces[id].text); byte >= 0 && file.pieces[id].type == PieceType::Byte)
      bytes_[byte] = static_cast<int32_t>(id);
}

void Unknowns::append(std::string_view character, std::vector<int32_t>& ids) const {
  if (bytes_.empty() && !ids.empty() && ids.back() == id_) return;
  if (bytes_.empty()) ids.push_back(id_);
  for (char byte : bytes_.empty() ? std::string_view() : character) ids.push_back(bytes_[static_cast<uint8_t>(byte)]);
}

}  // namespace trivet::data
