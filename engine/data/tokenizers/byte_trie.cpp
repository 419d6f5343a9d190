#include "engine/data/tokenizers/byte_trie.h"

#include <stdexcept>

namespace trivet::data {

ByteTrie::ByteTrie() : first_(256), edges_(64) {}

void ByteTrie::add(std::string_view bytes, int32_t value) {
  uint32_t node = 0;
  Edge* edge = nullptr;
  for (char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (node > 0 && 2 * (used_ + 1) > edges_.size()) grow();
    edge = node == 0 ? &first_[byte] : &edges_[place_of(node, byte)];
    if (edge->to == 0) {
      if (nodes_ >= kMostNodes) throw std::length_error("ByteTrie: more than 16777216 nodes");
      *edge = {.key = node << 8 | byte, .to = nodes_++};
      if (node > 0) ++used_;
    }
    node = edge->to;
  }
  if (edge) edge->value = value;
}

void ByteTrie::grow() {
  std::vector<Edge> old(2 * edges_.size());
  old.swap(edges_);
  for (const Edge& edge : old)
    if (edge.to != 0) edges_[place_of(edge.key)] = edge;
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text) const {
  Match longest;
  for_each_prefix(text, [&](size_t bytes, int32_t value) { longest = {bytes, value}; });
  return longest;
}

}  // namespace trivet::data
