// Byte strings with a number each, which are found at the beginning of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trivet::data {

class ByteTrie {
 public:
  ByteTrie();
  // A later number of the same bytes replaces an earlier one. Empty bytes are never found.
  void add(std::string_view bytes, int32_t value);

  // Calls visit(bytes, value) for each string with which `text` begins, the shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    const Edge* edge = &first_[static_cast<uint8_t>(text[0])];
    for (size_t bytes = 1; edge->to != 0; ++bytes) {
      if (edge->value >= 0) visit(bytes, edge->value);
      if (bytes == text.size()) return;
      edge = &edges_[place_of(edge->to, static_cast<uint8_t>(text[bytes]))];
    }
  }

  struct Match {
    size_t bytes = 0;  // 0: none
    int32_t value = -1;
  };
  Match longest_prefix(std::string_view text) const;
  bool may_begin(char c) const { return first_[static_cast<uint8_t>(c)].to != 0; }

 private:
  // An edge from a node, with what its end has: looking for a string reads one place of memory for each byte.
  struct Edge {
    uint32_t key = 0;    // the node and the byte
    uint32_t to = 0;     // 0: empty
    int32_t value = -1;  // -1: none
  };
  static constexpr uint32_t kMostNodes = 1u << 24;
  static size_t mixed(uint32_t key) { return static_cast<size_t>((key * uint64_t{0x9E3779B97F4A7C15u}) >> 24); }

  // Where the edge is in edges_, or the empty place that it would have.
  size_t place_of(uint32_t node, uint8_t byte) const { return place_of(node << 8 | byte); }
  size_t place_of(uint32_t key) const {
    for (size_t at = mixed(key);; ++at) {
      const Edge& edge = edges_[at & (edges_.size() - 1)];
      if (edge.key == key || edge.to == 0) return at & (edges_.size() - 1);
    }
  }
  void grow();

  std::vector<Edge> first_;  // those of the root, node 0, by byte
  std::vector<Edge> edges_;  // those of the other nodes; open addressing
  uint32_t nodes_ = 1;
  size_t used_ = 0;
};

}  // namespace trivet::data
