// Compares complete models on a tensor axis with the same models on one rank.
#include <gtest/gtest.h>

#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

Description small(Type type, double dropout) {
  return {.type = type,
          .layers = 2,
          .hidden_size = 32,
          .heads = 4,
          .key_value_heads = type == Type::Llama ? 2 : 0,
          .feed_forward_size = 44,
          .sequence_length = 12,
          .vocabulary_size = 61,
          .dropout = dropout,
          .tied_embedding = type == Type::Gpt};
}

// The spec of a parameter by its full name.
ParameterSpec spec_of(const Model& model, const std::string& name) {
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i)
      if (parameter_name(model, layer, i) == name) return model.layers[layer]->parameters()[i];
  throw std::logic_error("no parameter " + name);
}

class ModelOnAnAxis : public testing::TestWithParam<std::tuple<Type, int>> {
 protected:
  Type type() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

TEST_P(ModelOnAnAxis, LossAndAllGradientsAreAsOnOneRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  for (double dropout : {0.0, 0.2}) {
    for (bool fused : {true, false}) {
      WholeModel whole(small(type(), dropout), DType::Float64, Device::Cpu);
      const double expected = whole.train(batch, fused);
      on_axis(size(), [&](const RankAxis& axis) {
        WholeModel part(small(type(), dropout), DType::Float64, Device::Cpu, {}, &axis);
        EXPECT_NEAR(part.train(batch, fused), expected, kTolerance);
        for (const std::string& name : part.parameter_names()) {
          const ParameterSpec spec = spec_of(part.model(), name);
          expect_near(values_of(part.gradient(name)),
                      local_values(values_of(whole.gradient(name)), spec, axis.rank(), axis.size()), name);
        }
        EXPECT_EQ(part.arena().used_bytes(), 0);
      });
    }
  }
}

TEST_P(ModelOnAnAxis, TrainsAndEvaluatesAsOnOneRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel whole(small(type(), 0.1), DType::Float64, Device::Cpu);
  std::vector<double> expected;
  const auto losses = [&batch](WholeModel& model) {
    std::vector<double> all;
    for (model.step = 0; model.step < 10; ++model.step) {
      all.push_back(model.train(batch));
      model.sgd_step(0.5);
    }
    model.training = false;
    all.push_back(model.loss(batch));
    return all;
  };
  expected = losses(whole);
  EXPECT_LT(expected.back(), expected.front() - 0.1);
  on_axis(size(), [&](const RankAxis& axis) {
    WholeModel part(small(type(), 0.1), DType::Float64, Device::Cpu, {}, &axis);
    const std::vector<double> actual = losses(part);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-9) << "step " << i;
  });
}

TEST_P(ModelOnAnAxis, LogitsAreWholeOnEveryRank) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel whole(small(type(), 0), DType::Float64, Device::Cpu);
  const Values expected = whole.logits(batch);
  on_axis(size(), [&](const RankAxis& axis) {
    WholeModel part(small(type(), 0), DType::Float64, Device::Cpu, {}, &axis);
    expect_near(part.logits(batch), expected, "logits");
  });
}

TEST_P(ModelOnAnAxis, FusedAndSeparateBackwardGiveTheSameBits) {
  const Batch batch = random_batch(2, 12, 61, 1);
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    on_axis(size(), [&](const RankAxis& axis) {
      WholeModel fused(small(type(), 0.1), dtype, Device::Cpu, {}, &axis),
          apart(small(type(), 0.1), dtype, Device::Cpu, {}, &axis);
      EXPECT_EQ(fused.train(batch, true), apart.train(batch, false));
      for (const std::string& name : fused.parameter_names())
        EXPECT_EQ(values_of(fused.gradient(name)), values_of(apart.gradient(name))) << name;
    });
  }
}

TEST_P(ModelOnAnAxis, AFrozenParameterIsLeftOutAndTheOthersKeepTheirBits) {
  const Batch batch = random_batch(2, 12, 61, 1);
  on_axis(size(), [&](const RankAxis& axis) {
    WholeModel all(small(type(), 0), DType::Float32, Device::Cpu, {}, &axis);
    WholeModel part(small(type(), 0), DType::Float32, Device::Cpu, {}, &axis);
    all.train(batch);
    for (const std::string& frozen : all.parameter_names()) {
      part.frozen = frozen;
      part.train(batch);
      for (const std::string& name : all.parameter_names()) {
        const Values expected = values_of(all.gradient(name));
        EXPECT_EQ(values_of(part.gradient(name)), name == frozen ? Values(expected.size()) : expected) << name;
      }
    }
  });
}

// As on one rank, the difference to float32 is what rounding activations to bfloat16 costs.
TEST_P(ModelOnAnAxis, BFloat16FollowsFloat32) {
  const Batch batch = random_batch(2, 12, 61, 1);
  WholeModel exact(small(type(), 0), DType::Float32, Device::Cpu);
  const double expected = exact.train(batch);
  on_axis(size(), [&](const RankAxis& axis) {
    WholeModel rounded(small(type(), 0), DType::BFloat16, Device::Cpu, DType::Float32, &axis);
    EXPECT_NEAR(rounded.train(batch), expected, 0.02);
  });
}

TEST_P(ModelOnAnAxis, SendsWhatTheFormulasSayAndThePlannersGroupAgrees) {
  const Batch batch = random_batch(2, 12, 61, 1);
  const int64_t rows = 2 * 12, hidden = 32, layers = 2;
  on_axis(size(), [&](const RankAxis& axis) {
    WholeModel real(small(type(), 0.1), DType::Float32, Device::Cpu, {}, &axis);
    real.train(batch);
    const comm::Traffic traffic = axis.group.traffic();
    // Activations are summed once in the embedding, 4 times in each block and once in the head. The head's loss needs maxima,
    // and two sums for each row.
    int64_t operations = 1 + 4 * layers + 1 + 2;
    int64_t bytes = (2 + 4 * layers) * bytes_of_all_reduce(rows * hidden, 4, axis.size()) +
                    bytes_of_all_reduce(rows, 4, axis.size()) + bytes_of_all_reduce(2 * rows, 4, axis.size());
    if (type() == Type::Llama && axis.size() > 2) {  // gradients of key and value heads that neighbours share
      operations += layers;
      bytes += layers * bytes_of_all_reduce(2 * 2 * 8 * hidden, 4, axis.size());
    }
    EXPECT_EQ(traffic.operations, operations);
    EXPECT_EQ(traffic.bytes_sent, bytes);

    const auto group = comm::make_meta_group(axis.rank(), axis.size(), "tensor");
    const auto stream = make_inline_stream();
    const RankAxis plan{*group, *stream};
    WholeModel planned(small(type(), 0.1), DType::Float32, Device::Meta, {}, &plan);
    planned.train(batch);
    EXPECT_EQ(group->traffic().operations, operations);
    EXPECT_EQ(group->traffic().bytes_sent, bytes);
    EXPECT_EQ(planned.arena().peak_bytes(), real.arena().peak_bytes());
  });
}

INSTANTIATE_TEST_SUITE_P(TypesAndSizes, ModelOnAnAxis,
                         testing::Combine(testing::Values(Type::Gpt, Type::Llama), testing::Values(2, 4)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) == Type::Gpt ? "Gpt" : "Llama") + "On" +
                                  std::to_string(std::get<1>(test.param)) + "Ranks";
                         });

}  // namespace
}  // namespace trivet::model
