#include "comm/control/tree.h"

#include <algorithm>

namespace trivet::comm::control {

Tree::Tree(const std::vector<int>& node_of, int fan_out) : ranks_(node_of.size()), fan_out_(fan_out) {
  std::vector<int> nodes;  // by host
  for (int rank = 0; rank < size(); ++rank) {
    if (node_of[rank] == rank) nodes.push_back(rank);
  }
  for (std::size_t host = 1; host < nodes.size(); ++host) {  // a parent comes before its children
    Place& place = ranks_[nodes[host]];
    place.parent = nodes[(host - 1) / fan_out];
    place.depth = ranks_[place.parent].depth + 1;
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (node_of[rank] == rank) continue;
    ranks_[rank] = {node_of[rank], ranks_[node_of[rank]].depth + 1, 1};
    ++ranks_[node_of[rank]].below;
  }
  for (std::size_t host = nodes.size(); host-- > 1;) ranks_[ranks_[nodes[host]].parent].below += ranks_[nodes[host]].below;
}

int Tree::levels() const {
  int deepest = 0;
  for (const Place& place : ranks_) deepest = std::max(deepest, place.depth);
  return deepest;
}

bool Tree::is_below(int rank, int ancestor) const {
  while (depth(rank) > depth(ancestor)) rank = parent(rank);
  return rank == ancestor;
}

}  // namespace trivet::comm::control
