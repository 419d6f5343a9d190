// Ring attention (Liu et al. 2023, arXiv:2310.01889): context ranks hand keys and values on to their neighbours, and each
// computes attention of its own queries over what it has at the time. Results over different keys are merged by their
// log-sum-exp; backward hands sums of the keys' gradients on, too, until they are back with the rank that has the keys.
//
//   step s of c    a rank has the keys of rank - s, and receives the next ones while it computes
//
// Each rank's tokens are one or two consecutive pieces (core/sequence_part.h), and so the keys of a rank are all seen by the
// queries of a piece, or none, or, where both are the same piece, as in one sequence: kernels get pairs of pieces and know
// nothing of the ring. Therefore neither windows nor documents, and dropout of probabilities has draws of its own for each
// pair. The order of merges depends on the rank, and so do bits.
//
// With B sequences of S tokens, N and G heads of D elements, a rank sends (c - 1) / c B S elements of 2 G D forward; backward
// it sends those again, and B S of 2 G D in the type of statistics. It never has more than its own part of a tensor, twice.
#pragma once

#include <vector>

#include "model/gathered_attention.h"

namespace trivet::model {

class RingAttention {
 public:
  RingAttention(Context& context, const comm::RankAxis& axis, const CoreOptions& options)
      : context_(context), axis_(axis), options_(options) {}

  // Complete when the call returns. After an exception the axis's stream must finish before the arena is destroyed.
  void forward(const OwnTensors& own) const;
  void backward(const OwnTensors& own, ConstTensorView dout, TensorView dqkv) const;

 private:
  using Pieces = std::vector<ScopedTensor>;  // a tensor for each piece of the rank's tokens

  // What travels: keys and values of all pieces of a rank, [P][B, n / P, 2 G D], or their gradients.
  struct Travelling {
    ScopedTensor now, next;
    Event arrived;
  };
  // Two pieces, and whether the queries of the first see the second as in one sequence.
  struct Pair {
    int64_t queries = 0, keys = 0;
    bool causal = false;
    int64_t index = 0;  // among all pairs of pieces of a sequence
  };
  std::vector<Pair> pairs(int step, int64_t length) const;  // those of which queries see keys
  kernels::Attention core_of(const Pair& pair, int64_t tokens) const;
  OwnTokens own_tokens(ConstTensorView own_qkv) const { return axis_.part().tokens(own_qkv.shape[1] * axis_.size()); }

  // Tensors [B, n, W] and their pieces [B, n / P, W].
  Pieces pieces_of(ConstTensorView own, int count) const;
  void store_piece(ConstTensorView piece, TensorView own, int64_t index) const;
  Pieces rotated_pieces(ConstTensorView own_qkv) const;
  // The statistics of a piece, [B, N, n / P], of those of own tokens.
  void copy_statistics(ConstTensorView from, TensorView to, int64_t index, bool store) const;
  Travelling keys_of(const Pieces& qkv) const;
  TensorView keys(const Travelling& travelling, int64_t piece, const Pieces& qkv) const;
  void copy_columns(ConstTensorView from, int64_t first, TensorView to, int64_t to_first, int64_t width) const;
  void send_on(Travelling& travelling) const;
  void receive(Travelling& travelling) const;
  void rotate(TensorView piece, int64_t first_position, bool backward) const;
  void add_columns(ConstTensorView from, int64_t first, TensorView sum) const;
  void store_columns(ConstTensorView sum, TensorView to, int64_t first) const;
  int64_t query_width() const { return options_.core.heads * options_.head_size; }
  int64_t key_width() const { return 2 * options_.core.key_value_heads * options_.head_size; }

  Context& context_;
  const comm::RankAxis& axis_;
  CoreOptions options_;
};

}  // namespace trivet::model
