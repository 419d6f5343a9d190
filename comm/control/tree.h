// Computes parents and children in the control plane: arithmetic on which rank is the node of each rank's host.
//
//   root (rank 0)                 Every host has one node, which is one of its ranks; that of rank 0's host is rank 0.
//    |- ranks of its host         Hosts are numbered in the order of their nodes, so host 0 is the root's. The node of
//    |- node of host 1            host h is a child of the node of host (h - 1) / fan-out, and the other ranks of a host
//    |   |- ranks of host 1       are children of its node.
//    |   `- node of host 33
//    ...                          With a fan-out of 32, the nodes of up to 33 hosts are all children of the root, and
//    `- node of host 32           2,048 hosts are 3 levels below it (bench/results/control_plane.md).
#pragma once

#include <cstddef>
#include <vector>

namespace trivet::comm::control {

class Tree {
 public:
  static constexpr int kFanOut = 32;

  Tree() = default;
  // node_of[r] is the node of rank r's host; node_of[0] is 0, and the node of a node is itself.
  explicit Tree(const std::vector<int>& node_of, int fan_out = kFanOut);
  int size() const { return static_cast<int>(ranks_.size()); }
  int parent(int rank) const { return ranks_[rank].parent; }  // the root's is -1
  int depth(int rank) const { return ranks_[rank].depth; }    // the root's is 0
  // The number of ranks in the part of the tree that begins at this rank, with itself.
  int below(int rank) const { return ranks_[rank].below; }
  int fan_out() const { return fan_out_; }
  bool is_below(int rank, int ancestor) const;  // also true if they are the same
  int levels() const;                           // below the root

 private:
  struct Place {
    int parent = -1, depth = 0, below = 1;
  };
  std::vector<Place> ranks_;
  int fan_out_ = kFanOut;
};

}  // namespace trivet::comm::control
