// Runs one microbatch of a layer on ranks that share its split parameters, or its sequences, and compares them with one rank
// that has all of it.
// Ranks are threads.
//
// In float64 the two differ only by the order of sums: 1e-10 of the largest value of a tensor is generous for sums of at most a
// hundred terms of similar size.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "comm/rank_axis.h"
#include "comm/world.h"
#include "model/transformer_block.h"
#include "tests/model/whole_model.h"

namespace trivet::model {

using comm::RankAxis;

constexpr double kTolerance = 1e-10;
constexpr double kGarbage = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

void expect_near(const Values& actual, const Values& expected, const std::string& what);

enum class Way { Fused, Apart, Accumulated, Evaluated };

struct LayerCase {
  Shape input_shape;
  int64_t vocabulary = 0;     // > 0: the input is tokens
  int64_t targets_below = 0;  // > 0: the layer computes the loss
  int64_t mlp_slice_tokens = 0;
  ContextKind context_kind = ContextKind::Ulysses;
  SequencePart::Cut cut = SequencePart::Cut::InOrder;
  int neighbours = 1;                   // context ranks that exchange heads, for UlyssesRing
  std::vector<int32_t> documents = {};  // [B, S], all tokens (kernels/attention.h); empty: each sequence is one
  std::function<double(const std::string& name, int64_t element)> value = {};  // fills x, dy and weights; empty: random values

  SequencePart part_of(int rank, int ranks) const { return {rank, ranks, cut, neighbours}; }
};

// What a rank has after one microbatch.
struct Outcome {
  Values y, dx;
  std::vector<Values> gradients;
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  comm::Traffic traffic;   // of the axis and of its parts
  int64_t peak_bytes = 0;  // of its arena
};

inline TensorView view_of(Values& values, const Shape& shape) { return {values.data(), DType::Float64, shape}; }

// Runs the layer on this rank of `axis`, a tensor axis or a context axis; without an axis, on one rank that holds everything.
Outcome run_layer(const Layer& layer, const LayerCase& it, Way way, const RankAxis* axis, Axis name = Axis::Tensor);

// Runs `body` on `size` ranks that are a tensor axis with a stream of its own.
void on_axis(int size, const std::function<void(const RankAxis&)>& body, bool sequence_parallel = false);

std::vector<Outcome> run_ranks(const Layer& layer, const LayerCase& it, Way way, int size, bool sequence_parallel = false,
                               Axis name = Axis::Tensor);

// Every rank must have all of y and dx, the loss, and its part of each gradient.
void expect_as_one_rank(const Layer& layer, const LayerCase& it, int size);
// With sequence parallelism, every rank must have its tokens of y and dx; as context ranks, also their part of the loss.
void expect_as_one_rank_in_parts(const Layer& layer, const LayerCase& it, int size, Axis name = Axis::Tensor);

// A rank sends 2 (n - 1) / n of the bytes that are reduced.
inline int64_t bytes_of_all_reduce(int64_t elements, int64_t element_bytes, int size) {
  return 2 * (size - 1) * elements * element_bytes / size;
}

inline TransformerBlock::Options gpt_block(double dropout) {
  return {.attention = {.hidden = 24, .heads = 4, .key_value_heads = 4, .dropout = dropout},
          .mlp = {.hidden = 24, .feed_forward = 36},
          .dropout = dropout};
}

inline TransformerBlock::Options llama_block(double dropout, int64_t key_value_heads, bool bias = false) {
  return {.attention = {.hidden = 32,
                        .heads = 8,
                        .key_value_heads = key_value_heads,
                        .bias = bias,
                        .dropout = dropout,
                        .rotary_base = 10000},
          .mlp = {.hidden = 32, .feed_forward = 20, .activation = Activation::SwiGlu, .bias = bias},
          .norm = NormKind::RmsNorm,
          .dropout = dropout};
}
// With latents of queries, keys and values, and values that are narrower than heads.
inline TransformerBlock::Options latent_block(double dropout) {
  TransformerBlock::Options options = llama_block(dropout, 8);
  options.attention.head_size = 6;
  options.attention.rotated = 2;
  options.attention.latent = {.query_rank = 10, .key_value_rank = 7, .rotary_size = 2, .value_size = 5};
  return options;
}

}  // namespace trivet::model
