// Ulysses (Jacobs et al. 2023, arXiv:2309.14509): context ranks, which share the tokens of each sequence, exchange heads for
// tokens, so that each computes attention of some heads over whole sequences. One all-to-all before the core, one after it.
//
//   to_heads    own[B, S / c, W]  ->  whole[B, S, W']      rank r gets its part of each of the segments
//   to_tokens   whole[B, S, W']  ->  own[B, S / c, W]      the inverse, and the gradient of to_heads
//
// c context ranks, B sequences of S tokens, of which rank r has [r S / c, (r + 1) S / c). A row of W elements consists of
// segments, such as queries, keys and values. Of each a rank gets one of c equal parts, or, of a segment with fewer heads than
// ranks, the head that c / heads neighbours share: then to_tokens sums what they have. A rank sends (c - 1) / c of what it
// packs, S / c W' c elements for each sequence.
#pragma once

#include <span>
#include <vector>

#include "comm/rank_axis.h"
#include "core/layer.h"

namespace trivet::model {

// A segment of a row: heads that ranks share.
struct Heads {
  int64_t count = 0, size = 0;  // in a whole row; elements of one
};

class HeadExchange {
 public:
  // `axis` and `segments` must outlive this object. Throws ConfigError if the ranks do not divide a number of heads, and if
  // that, being smaller, does not divide the ranks either.
  HeadExchange(Context& context, const comm::RankAxis& axis, std::span<const Heads> segments);

  // Complete when the call returns. Both have one dtype, in which sums of shared heads are rounded.
  void to_heads(ConstTensorView own, TensorView whole) const;
  void to_tokens(ConstTensorView whole, TensorView own) const;

 private:
  // Where a segment is: of `parts` different parts, each `width` long, a rank has one, and `holders` neighbours have the same.
  struct Place {
    int64_t in_row = 0, in_part = 0;  // its first element in a whole row, and in a rank's
    int64_t width = 0, parts = 0, holders = 1;
  };
  void exchange(ConstTensorView sent, TensorView received) const;
  void add_copies(const Place& place, ConstTensorView received, TensorView own) const;

  Context& context_;
  const comm::RankAxis& axis_;
  std::vector<Place> places_;
  int64_t row_ = 0, part_ = 0;  // W, W'
};

}  // namespace trivet::model
