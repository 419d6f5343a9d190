// Formulas for models with gated feed-forwards and grouped-query attention, and for FLOP counts that know causal masks.
#include <gtest/gtest.h>

#include "autotune/transformer_formulas.h"
#include "model/count_flops.h"

namespace trivet::autotune {
namespace {

struct Llama {
  int64_t layers, hidden, heads, key_value_heads, feed_forward, vocabulary;
  int64_t parameters;  // of the published weights
};

// Llama 2 7B, Llama 3 8B and 70B, and Llama 3.1 405B consist of layers, two tables and the last norm.
TEST(LlamaFormulas, CountTheParametersOfPublishedModels) {
  for (const Llama& m : {Llama{32, 4096, 32, 32, 11008, 32000, 6'738'415'616},
                         {32, 4096, 32, 8, 14336, 128256, 8'030'261'248},
                         {80, 8192, 64, 8, 28672, 128256, 70'553'706'496},
                         {126, 16384, 128, 8, 53248, 128256, 405'853'388'800}}) {
    const double layers =
        static_cast<double>(m.layers) * llama_layer_parameters(m.hidden, m.heads, m.key_value_heads, m.feed_forward);
    EXPECT_DOUBLE_EQ(layers + static_cast<double>(2 * m.vocabulary * m.hidden + m.hidden), static_cast<double>(m.parameters));
  }
}

TEST(LlamaFormulas, CountTheParametersThatALayerHas) {
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 1,
                                           .hidden_size = 64,
                                           .heads = 8,
                                           .key_value_heads = 2,
                                           .feed_forward_size = 96,
                                           .sequence_length = 8,
                                           .vocabulary_size = 10});
  int64_t elements = 0;
  for (const ParameterSpec& parameter : model.layers[1]->parameters()) elements += parameter.shape.elements();
  EXPECT_DOUBLE_EQ(llama_layer_parameters(64, 8, 2, 96), static_cast<double>(elements));
}

// For each token the model's convention counts three times the forward FLOPs of attention, and 6 for each element of the other
// matrices.
TEST(LlamaFormulas, FlopsOfAttentionAreThoseOfTheModelsConvention) {
  const TransformerShape shape{.layers = 3, .hidden = 64, .heads = 8, .vocabulary = 10, .sequence = 16};
  const model::Model model = model::build({.type = model::Type::Llama,
                                           .layers = 3,
                                           .hidden_size = 64,
                                           .heads = 8,
                                           .key_value_heads = 2,
                                           .feed_forward_size = 96,
                                           .sequence_length = 16,
                                           .vocabulary_size = 10});
  const double attention = 3 * attention_forward_flops(shape, 2), others = 6 * 16 * 3 * 64 * 96;
  EXPECT_DOUBLE_EQ(model::flops_per_sample(model), 3 * (attention + others) + 16 * 6 * 64 * 10);
  EXPECT_DOUBLE_EQ(attention_forward_flops(shape, 2, 2), 2 * attention_forward_flops(shape, 2));
}

// Recomputing attention replaces s / (6 h) by s / (3 h). That adds 12 B s^2 h per layer, three times the 4 B s^2 h of the
// forward that is recomputed.
TEST(LlamaFormulas, RecomputedAttentionAddsTheScores) {
  const TransformerShape shape{.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 51200, .sequence = 2048};
  const double added = gpt_step_flops(shape, 1536, RecomputedPart::Attention) - gpt_step_flops(shape, 1536);
  EXPECT_NEAR(added / (12.0 * 1536 * 2048 * 2048 * 12288 * 96), 1, 1e-9);
}

// 18 + 4 f / h is 34 with f = 4 h. Llama 3 8B has f = 3.5 h.
TEST(LlamaFormulas, ActivationsFollowTheFeedForward) {
  const TransformerShape shape{.layers = 1, .hidden = 4096, .heads = 32, .vocabulary = 1, .sequence = 8192};
  EXPECT_DOUBLE_EQ(activation_bytes_of_feed_forward(shape, 2, 8, 4 * 4096),
                   activation_bytes_per_layer(shape, 2, 8, true, SavedActivations::AllButScores));
  EXPECT_DOUBLE_EQ(activation_bytes_of_feed_forward(shape, 1, 1, 14336), 32.0 * 8192 * 4096);
}

// Scores take 5 a s / h bytes per element of activations. FlashAttention and recomputation save them.
TEST(LlamaFormulas, ScoresWeighMoreThanTheRest) {
  struct Row {
    int64_t hidden, heads;
    double scores;
  };
  for (const Row& row : {Row{6144, 64, 106.7}, {12288, 96, 80}, {20480, 128, 64}, {25600, 160, 64}}) {
    const TransformerShape shape{.layers = 1, .hidden = row.hidden, .heads = row.heads, .vocabulary = 1, .sequence = 2048};
    const auto bytes = [&](SavedActivations saved) { return activation_bytes_per_layer(shape, 1, 1, false, saved); };
    const double scores = bytes(SavedActivations::All) - bytes(SavedActivations::AllButScores);
    EXPECT_NEAR(scores / (2048.0 * static_cast<double>(row.hidden)), row.scores, 0.05);
  }
}

}  // namespace
}  // namespace trivet::autotune
