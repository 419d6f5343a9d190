// Formulas for models with gated feed-forwards and grouped-query attention, and for FLOP counts that know causal masks.
#include <gtest/gtest.h>

#include "model/count_flops.h"
#include "tests/autotune/transformer_formulas.h"

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

}  // namespace
}  // namespace trivet::autotune
