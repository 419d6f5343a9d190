// Byte strings with a number each, which are found at the beginning of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trivet::data {

// The longest token that is searched for at each byte of a text, so that no vocabulary makes that much slower than reading.
inline constexpr size_t kLongestSearched = 512;

class ByteTrie {
 public:
  ByteTrie();
  // A later number of the same bytes replaces an earlier one. Empty bytes are never found.
  void add(std::string_view bytes, int32_t value);

  // Calls visit(bytes, value) for each string with which `text` begins, the shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) visit(i + 1, values_[node]);
    }
  }

  struct Match {
    size_t bytes = 0;  // 0: none
    int32_t value = -1;
  };
  Match longest_prefix(std::string_view text) const;
  bool may_begin(char c) const { return first_[static_cast<uint8_t>(c)] != 0; }

 private:
  struct Edge {
    uint32_t key = 0;  // the node and the byte
    uint32_t to = 0;   // 0: empty
  };
  static constexpr uint32_t kMostNodes = 1u << 24;
  static size_t mixed(uint32_t key) { return static_cast<size_t>((key * uint64_t{0x9E3779B97F4A7C15u}) >> 24); }

  uint32_t child(uint32_t node, uint8_t byte) const {
    if (node == 0) return first_[byte];
    const uint32_t key = node << 8 | byte;
    for (size_t at = mixed(key);; ++at) {
      const Edge& edge = edges_[at & (edges_.size() - 1)];
      if (edge.key == key || edge.to == 0) return edge.to;
    }
  }
  uint32_t new_child(uint32_t node, uint8_t byte);
  void grow();

  std::vector<uint32_t> first_;  // children of the root, node 0
  std::vector<Edge> edges_;      // children of the other nodes; open addressing
  std::vector<int32_t> values_;  // value of each node; -1: none
  size_t used_ = 0;
};

}  // namespace trivet::data
