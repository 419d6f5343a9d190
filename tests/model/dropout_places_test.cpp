// Tests where a model drops: on the embedding, on attention's probabilities and on both residual branches, but nowhere in
// evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/observed_kernels.h"
#include "model/model.h"

namespace trivet::model {
namespace {

using testing::Contains;
using testing::Not;

class Calls final : public kernels::KernelObserver {
 public:
  void ended(const kernels::KernelCall& call) override {
    made.push_back(std::string(call.kernel) + (call.variant.empty() ? "" : " ") + std::string(call.variant));
  }
  std::vector<std::string> made;
};

// The kernels that one layer's forward calls, on tensors without memory.
std::vector<std::string> calls_of(const Model& model, size_t layer, bool training) {
  Calls calls;
  const auto meta = kernels::make_meta_kernels();
  const auto observed = kernels::make_observed_kernels(*meta, calls);
  Arena arena("calls");
  const Shape tokens{2, model.sample.input[0]}, hidden{2, model.sample.input[0], model.description->hidden_size};
  const Microbatch microbatch{{nullptr, DType::Int32, tokens}, {nullptr, DType::Int32, tokens}, 0};
  Context context{.kernels = *observed, .arena = arena, .microbatch = &microbatch};
  context.training = training;
  std::vector<ConstTensorView> weights;
  for (const ParameterSpec& spec : model.layers[layer]->parameters()) weights.push_back({nullptr, DType::Float32, spec.shape});
  const ConstTensorView x = layer == 0 ? microbatch.input : ConstTensorView{nullptr, DType::Float32, hidden};
  Saved saved;
  model.layers[layer]->forward(context, weights, x, {nullptr, DType::Float32, hidden}, saved);
  return calls.made;
}

TEST(DropoutPlaces, AreTheEmbeddingAttentionAndResiduals) {
  for (const Type type : {Type::Gpt, Type::Llama}) {
    Description description{
        .type = type, .layers = 1, .hidden_size = 24, .heads = 4, .sequence_length = 12, .vocabulary_size = 31};
    description.dropout = 0.1;
    const Model model = build(description);
    EXPECT_THAT(calls_of(model, 0, true), Contains("dropout_backward")) << "which drops in place";
    EXPECT_THAT(calls_of(model, 0, false), Not(Contains("dropout_backward")));
    EXPECT_THAT(calls_of(model, 1, true), Contains("attention drops"));
    EXPECT_THAT(calls_of(model, 1, true), Contains("dropout_add drops"));
    EXPECT_THAT(calls_of(model, 1, false), Contains("attention"));
    EXPECT_THAT(calls_of(model, 1, false), Not(Contains("dropout_add drops")));
    EXPECT_THAT(calls_of(model, 1, false), Not(Contains("attention drops")));
  }
}

}  // namespace
}  // namespace trivet::model
