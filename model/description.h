// Defines a model of one of the families (model/family.h). The section "model" of a config is this struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.h"
#include "kernels/experts.h"
#include "kernels/preference_rule.h"
#include "model/latent_attention.h"
#include "model/rotary_scaling.h"

namespace trivet::model {

enum class Type { Gpt, Llama, Sequential };  // the families
enum class GateActivation { Silu, Gelu };    // for an MLP with a gate
enum class QkNormSpan { Head, Projection };  // the elements of a token's queries, or keys, that are normalized together

// The aim that a model of text is trained for: the cross-entropy of the next tokens; the same, for data that mark
// prompts, whose tokens do not count; or to tell a preferred answer from a rejected one (kernels/preference_rule.h).
enum class Objective { NextToken, Sft, Dpo };

// Steps leave tokens out of some blocks (model/dropped_tokens.h).
struct TokenDrop {
  bool enabled = false;
  std::vector<int64_t> blocks;             // from 0
  int64_t min_tokens = 0, max_tokens = 0;  // tokens per sequence that these blocks compute at first and in the end
  int64_t steps = 0, multiple = 0;         // from the minimum to the maximum, by multiples of this number
};

// Low-rank adapters (model/lora.h). With adapters all other parameters are frozen.
struct Lora {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 8;  // the output of an adapter is multiplied by alpha / rank
  std::vector<std::string> targets;

  bool enabled() const { return rank > 0; }
};

// Mixtures of experts in place of MLPs (model/expert_mlp.h).
struct Experts {
  int64_t count = 0;                     // in each block; 0: MLPs
  int64_t per_token = 2;                 // that compute each token
  int64_t feed_forward_size = 0;         // of an expert; 0: Description::feed_forward_size
  int64_t shared_feed_forward_size = 0;  // of an MLP that computes every token, too; 0: none
  std::vector<int64_t> dense_blocks;     // from 0: they have an MLP
  bool shared_gate = false;              // the output of that MLP is multiplied by a sigmoid of each token
  kernels::ExpertRule rule;
  bool bias = false;  // the router and the experts have biases
  kernels::SwiGluRule swiglu;
  bool correction_bias = false;         // added to scores when experts are chosen, but not to their weights
  double bias_update_rate = 0.001;      // change of these biases in a step, for balance; 0: none
  double balance_loss = 0, z_loss = 0;  // coefficients

  bool enabled() const { return count > 0; }
};

struct Description {
  Type type = Type::Gpt;
  int64_t layers = 12, hidden_size = 768, heads = 12;
  int64_t key_value_heads = 0;    // 0: as many as heads
  int64_t head_size = 0;          // 0: hidden_size / heads
  int64_t feed_forward_size = 0;  // 0: the family's default
  int64_t sequence_length = 1024;
  int64_t attention_window = 0;      // tokens that a token sees at most, itself among them; 0: all before it
  int64_t full_attention_every = 0;  // in every n-th layer tokens see all before them; 0: in none, if there is a window
  int64_t vocabulary_size = 0;
  double dropout = 0;          // on embeddings, attention probabilities and residuals
  bool tied_embedding = true;  // the LM head uses the embedding's table
  bool bias = true;            // for projections and norms
  bool qkv_bias = false;       // for the projection to queries, keys and values alone, in a family without `bias`
  bool out_bias = false;       // for attention's output projection alone, in such a family
  bool qk_norm = false;        // queries and keys are normalized
  QkNormSpan qk_norm_over = QkNormSpan::Head;
  // Queries at position p are multiplied by 1 + query_temperature ln(1 + floor(p / query_temperature_length)); 0: they are not.
  double query_temperature = 0;
  int64_t query_temperature_length = 8192;
  double query_scale_size = 0;    // scores of attention are divided by its square root; 0: head_size
  bool attention_sinks = false;   // each head has one more score, which belongs to no token
  double attention_soft_cap = 0;  // scores and
  double logits_soft_cap = 0;     // logits become cap tanh(x / cap) (kernels/attention.h); 0: they have no cap
  double logits_scaling = 1;      // logits are divided by it
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;
  double window_rotary_base = 0;  // in layers with a window, which then have no scaling; 0: as in the others
  double rotary_share = 1;        // share of a head's elements that are rotated; the first ones
  int64_t no_rotary_every = 0;    // in every n-th layer nothing is rotated; 0: in all layers queries and keys are
  RotaryScaling rotary_scaling;
  double embedding_scale = 1;
  double residual_scale = 1;  // multiplies what attention and MLP add to the residual stream
  GateActivation gate_activation = GateActivation::Silu;
  bool pre_norm = true;             // the inputs of attention and MLP are normalized
  bool post_norm = false;           // their outputs are
  double initializer_range = 0.02;  // standard deviation; projections into the residual stream: divided by sqrt(2 layers)
  TokenDrop token_drop;             // in the blocks of a transformer
  Experts experts;
  LatentAttention latent_attention;  // in place of key_value_heads and rotary_share
  Lora lora;                         // for linear layers in these blocks
  Objective objective = Objective::NextToken;
  bool isolated_documents = false;     // samples are several documents that do not see each other (SampleSpec::documents)
  kernels::PreferenceRule preference;  // Objective::Dpo
  // Sequential:
  std::vector<int64_t> input;        // shape of a sample: channels, rows, columns
  std::vector<std::string> network;  // its layers (model/sequential.h)
};

// Fills in the sizes that 0 leaves open.
Description with_defaults(const Description& description);

// Returns the same model with another vocabulary.
inline Description with_vocabulary(Description description, int64_t size) {
  description.vocabulary_size = size;
  return description;
}

// A size that does not fit the others.
struct Problem {
  std::string key;   // key in the section "model": "heads"
  std::string text;  // "5 heads do not divide model.hidden_size 768; use a divisor"
};
// Checks everything but the vocabulary, which a config may leave to the data.
std::optional<Problem> find_problem(const Description& description);

// Returns whether block `block`, from 0, of a transformer has experts.
bool has_experts(const Description& description, int64_t block);

// The number of layers of the model, and what they are: "embedding, 12 layers, head".
int64_t block_count(const Description& description);
std::string blocks_in_words(const Description& description);

// Returns why this many tensor ranks cannot share the model ("does not divide model.heads 12"), or "" if they can. Query heads
// and feed-forward must divide evenly. Key/value heads must divide evenly, or several ranks must hold the same one. The
// vocabulary can be divided in any way. hidden_size needs no rule of its own: it is not divided.
// With `fixed_sums`, sums must not depend on `ranks`: then it must divide tensor_parallel::kSumChunks, and several ranks may
// not hold the same key/value head.
std::string tensor_problem(const Description& description, int64_t ranks, bool fixed_sums = false);

// Returns why this many context ranks cannot share the heads of a tensor rank, of which there are `tensor`, or "" if they can.
// Key/value heads must divide evenly, or several ranks must hold the same one.
std::string ulysses_problem(const Description& description, int64_t ranks, int64_t tensor);

}  // namespace trivet::model

template <>
struct trivet::EnumNames<trivet::model::Type> {
  static constexpr std::array<std::pair<std::string_view, model::Type>, 3> table{
      {{"gpt", model::Type::Gpt}, {"llama", model::Type::Llama}, {"sequential", model::Type::Sequential}}};
};

template <>
struct trivet::EnumNames<trivet::model::Objective> {
  static constexpr std::array<std::pair<std::string_view, model::Objective>, 3> table{
      {{"next_token", model::Objective::NextToken}, {"sft", model::Objective::Sft}, {"dpo", model::Objective::Dpo}}};
};

template <>
struct trivet::EnumNames<trivet::model::GateActivation> {
  static constexpr std::array<std::pair<std::string_view, model::GateActivation>, 2> table{
      {{"silu", model::GateActivation::Silu}, {"gelu", model::GateActivation::Gelu}}};
};

template <>
struct trivet::EnumNames<trivet::model::QkNormSpan> {
  static constexpr std::array<std::pair<std::string_view, model::QkNormSpan>, 2> table{
      {{"head", model::QkNormSpan::Head}, {"projection", model::QkNormSpan::Projection}}};
};
