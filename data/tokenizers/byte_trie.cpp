#include "data/tokenizers/byte_trie.h"

#include <stdexcept>

namespace trivet::data {

ByteTrie::ByteTrie() : first_(256, 0), edges_(64), values_{-1} {}

void ByteTrie::add(std::string_view bytes, int32_t value) {
  uint32_t node = 0;
  for (char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    const uint32_t next = child(node, byte);
    node = next != 0 ? next : new_child(node, byte);
  }
  if (node != 0) values_[node] = value;
}

uint32_t ByteTrie::new_child(uint32_t node, uint8_t byte) {
  if (values_.size() >= kMostNodes) throw std::length_error("ByteTrie: more than 16777216 nodes");
  const auto made = static_cast<uint32_t>(values_.size());
  values_.push_back(-1);
  if (node == 0) {
    first_[byte] = made;
    return made;
  }
  if (2 * (used_ + 1) > edges_.size()) grow();
  const uint32_t key = node << 8 | byte;
  size_t at = mixed(key);
  while (edges_[at & (edges_.size() - 1)].to != 0) ++at;
  edges_[at & (edges_.size() - 1)] = {key, made};
  ++used_;
  return made;
}

void ByteTrie::grow() {
  std::vector<Edge> old(2 * edges_.size());
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.to == 0) continue;
    size_t at = mixed(edge.key);
    while (edges_[at & (edges_.size() - 1)].to != 0) ++at;
    edges_[at & (edges_.size() - 1)] = edge;
  }
}

ByteTrie::Match ByteTrie::longest_prefix(std::string_view text) const {
  Match longest;
  for_each_prefix(text, [&](size_t bytes, int32_t value) { longest = {bytes, value}; });
  return longest;
}

}  // namespace trivet::data
