// Models that are a list of layers (model.network): their shapes, parameters and names, and what is refused.
#include "model/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::model {
namespace {

using testing::ElementsAre;

Description network(std::vector<int64_t> input, std::vector<std::string> layers) {
  return {.type = Type::Sequential, .input = std::move(input), .network = std::move(layers)};
}

int64_t parameters_of(const Description& description) { return parameter_count(build(description)); }

// The sizes are those of the documents' examples.
TEST(Sequential, HasTheParametersOfHorovodsNetForMnist) {
  EXPECT_EQ(parameters_of(network({1, 28, 28}, {"conv 32", "relu", "conv 64", "relu", "max_pool 2", "dropout 0.25", "flatten",
                                                "dense 128", "relu", "dropout 0.5", "dense 10"})),
            1'199'882);
}

TEST(Sequential, HasTheParametersOfTensorFlowsNetForMnist) {
  EXPECT_EQ(parameters_of(network({1, 28, 28}, {"conv 32", "relu", "flatten", "dense 128", "relu", "dense 10"})), 2'770'634);
}

TEST(Sequential, HasTheParametersOfPyTorchsNetForCifar) {
  EXPECT_EQ(
      parameters_of(network({3, 32, 32}, {"conv 32", "relu", "conv 64", "relu", "max_pool 2", "conv 128", "relu", "max_pool 2",
                                          "flatten", "dense 120", "relu", "dropout 0.2", "dense 84", "relu", "dense 10"})),
      657'342);
}

TEST(Sequential, NamesItsLayersByNumberAndKind) {
  const Model model = build(network({3, 8, 8}, {"conv 4 padding 1", "batch_norm", "gelu", "average_pool 2", "group_norm 2",
                                                "global_average_pool", "flatten", "dense 5 no_bias"}));
  EXPECT_THAT(model.names, ElementsAre("1.conv", "2.batch_norm", "3.gelu", "4.average_pool", "5.group_norm",
                                       "6.global_average_pool", "7.flatten", "8.dense", "loss"));
  EXPECT_EQ(model.sample.input, (Shape{3, 8, 8}));
  EXPECT_EQ(model.sample.input_dtype, DType::Float32);
  EXPECT_EQ(model.sample.classes, 5);
  Shape shape{2, 3, 8, 8};
  std::vector<Shape> shapes;
  for (const auto& layer : model.layers) shapes.push_back(shape = layer->output_shape(shape));
  EXPECT_THAT(shapes, ElementsAre(Shape{2, 4, 8, 8}, Shape{2, 4, 8, 8}, Shape{2, 4, 8, 8}, Shape{2, 4, 4, 4}, Shape{2, 4, 4, 4},
                                  Shape{2, 4, 1, 1}, Shape{2, 4}, Shape{2, 5}, Shape{0}));
}

TEST(Sequential, ReadsOptionsInAnyOrder) {
  const Model model = build(network({3, 9, 9}, {"conv 4 stride 2 no_bias padding 2 kernel 5", "max_pool 3 padding 1 stride 2",
                                                "batch_norm epsilon 0.5 momentum 0.25", "flatten"}));
  EXPECT_EQ(model.layers[0]->parameters().size(), 1u);
  EXPECT_EQ(model.layers[0]->parameters()[0].shape, (Shape{4, 3, 5, 5}));
  EXPECT_EQ(model.layers[0]->output_shape({1, 3, 9, 9}), (Shape{1, 4, 5, 5}));
  EXPECT_EQ(model.layers[1]->output_shape({1, 4, 5, 5}), (Shape{1, 4, 3, 3}));
  EXPECT_EQ(model.layers[2]->parameters()[2].update.momentum, 0.25);
  EXPECT_EQ(model.sample.classes, 4 * 3 * 3);
}

// As PyTorch's Conv2d and Linear: uniform up to 1 / sqrt(inputs).
TEST(Sequential, StartsFromPyTorchsInitialValues) {
  const Model model = build(network({2, 8, 8}, {"conv 4", "flatten", "dense 3"}));
  for (const ParameterSpec& parameter : model.layers[0]->parameters()) {
    EXPECT_EQ(parameter.init.kind, Init::Kind::Uniform);
    EXPECT_DOUBLE_EQ(parameter.init.scale, 1 / std::sqrt(2.0 * 9));
  }
  for (const ParameterSpec& parameter : model.layers[2]->parameters()) {
    EXPECT_EQ(parameter.init.kind, Init::Kind::Uniform);
    EXPECT_DOUBLE_EQ(parameter.init.scale, 1 / std::sqrt(4.0 * 36));
  }
}

Description small_vision_transformer() {
  return network({1, 28, 28},
                 {"patches 64 size 7", "positions", "block 4", "block 4 feed_forward 128", "layer_norm", "mean", "dense 10"});
}

// Of W numbers a token: patches 49 W + W, positions 16 W, a block 4 W^2 + 4 W and 2 W F + W + F with norms of 4 W.
TEST(Sequential, HasTheParametersOfAVisionTransformer) {
  const int64_t blocks = 2 * (4 * 64 * 64 + 9 * 64) + (2 * 64 * 256 + 256) + (2 * 64 * 128 + 128);
  EXPECT_EQ(parameters_of(small_vision_transformer()), 50 * 64 + 16 * 64 + blocks + 2 * 64 + 64 * 10 + 10);
}

TEST(Sequential, ShapesAndNamesOfAVisionTransformer) {
  const Model model = build(small_vision_transformer());
  EXPECT_THAT(model.names,
              ElementsAre("1.patches", "2.positions", "3.block", "4.block", "5.layer_norm", "6.mean", "7.dense", "loss"));
  EXPECT_EQ(parameter_name(model, 2, 0), "3.block.norm1.gain");
  EXPECT_EQ(model.layers[0]->output_shape({3, 1, 28, 28}), (Shape{3, 16, 64}));
  EXPECT_EQ(model.layers[5]->output_shape({3, 16, 64}), (Shape{3, 64}));
  EXPECT_EQ(model.sample.classes, 10);
  EXPECT_EQ(model.sample.targets, Shape{1});
}

// The output of a transformer block for a sequence of 3 tokens of 4 numbers; weights are all different.
std::vector<double> output_of_block(const std::vector<double>& x) {
  const Model model = build(network({1, 4, 3}, {"columns", "block 2", "mean"}));
  const auto kernels = kernels::make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("block", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
  Context context{.kernels = *kernels, .arena = arena};
  Saved saved;
  std::vector<double> y(x.size()), numbers(1024);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i));
  std::vector<ConstTensorView> weights;
  for (const ParameterSpec& parameter : model.layers[1]->parameters())
    weights.push_back({numbers.data() + weights.size(), DType::Float64, parameter.shape});
  model.layers[1]->forward(context, weights, {x.data(), DType::Float64, {1, 3, 4}}, {y.data(), DType::Float64, {1, 3, 4}},
                           saved);
  return y;
}

TEST(Sequential, TheFirstTokenOfABlockSeesTheLast) {
  EXPECT_NE(output_of_block({1, 2, 3, 5, 2, 1, 0, 1, 1, 0, 0, 3})[0], output_of_block({1, 2, 3, 5, 2, 1, 0, 1, 7, 0, 1, 3})[0]);
}

// Words of up to 6 characters out of 27, in images whose columns are steps.
Description recognizer() {
  return network({1, 16, 48}, {"conv 8 padding 1", "relu", "max_pool 2", "columns", "dense 32", "positions", "block 4",
                               "dense 28", "ctc 6"});
}

TEST(Sequential, CtcIsALossOfItsOwn) {
  const Model model = build(recognizer());
  EXPECT_EQ(model.names.back(), "9.ctc");
  EXPECT_EQ(model.layers.back()->role(), LayerRole::Loss);
  EXPECT_EQ(model.sample.targets, Shape{6});
  EXPECT_EQ(model.sample.classes, 28);
  EXPECT_EQ(block_count(recognizer()), static_cast<int64_t>(model.layers.size()));
  EXPECT_EQ(blocks_in_words(recognizer()), "9 layers of model.network");
  EXPECT_EQ(model.layers[3]->output_shape({2, 8, 8, 24}), (Shape{2, 24, 64}));
}

std::string problem_of(const Description& description) {
  const auto problem = find_problem(description);
  return problem ? problem->key + ": " + problem->text : "";
}
std::string problem_of(std::vector<std::string> layers) { return problem_of(network({1, 8, 8}, std::move(layers))); }

TEST(Sequential, SaysWhatIsWrongWithALayer) {
  EXPECT_EQ(
      problem_of({"flatten", "dens 10"}),
      "network: layer 2, \"dens 10\": there is no layer \"dens\"; use one of conv, max_pool, average_pool, "
      "global_average_pool, batch_norm, group_norm, relu, gelu, dropout, flatten, dense, patches, columns, positions, block, "
      "layer_norm, mean, ctc");
  EXPECT_EQ(problem_of({""}), "network: layer 1, \"\": is empty; write the name of a layer");
  EXPECT_EQ(
      problem_of({"conv"}),
      "network: layer 1, \"conv\": the number after \"conv\" is missing; write \"conv CHANNELS [kernel 3] [stride 1] [padding "
      "0] [no_bias]\"");
  EXPECT_EQ(
      problem_of({"conv 4 kernel"}),
      "network: layer 1, \"conv 4 kernel\": the number after \"kernel\" is missing; write \"conv CHANNELS [kernel 3] [stride "
      "1] [padding 0] [no_bias]\"");
  const std::string usage = "; write \"conv CHANNELS [kernel 3] [stride 1] [padding 0] [no_bias]\"";
  EXPECT_EQ(problem_of({"conv 4 kernel 3 kernel 5"}),
            "network: layer 1, \"conv 4 kernel 3 kernel 5\": \"kernel\" is given twice" + usage);
  EXPECT_EQ(problem_of({"conv 4 no_bias no_bias"}),
            "network: layer 1, \"conv 4 no_bias no_bias\": \"no_bias\" is given twice" + usage);
  EXPECT_EQ(problem_of({"relu 3"}), "network: layer 1, \"relu 3\": \"3\" is not known here; write \"relu\"");
  EXPECT_EQ(problem_of({"conv 0"}),
            "network: layer 1, \"conv 0\": channels 0 is not accepted; use a whole number from 1 to 262144");
  EXPECT_EQ(problem_of({"conv 4x"}),
            "network: layer 1, \"conv 4x\": channels 4x is not accepted; use a whole number from 1 to 262144");
  EXPECT_EQ(problem_of({"conv 1.5"}),
            "network: layer 1, \"conv 1.5\": channels 1.5 is not accepted; use a whole number from 1 to 262144");
  EXPECT_EQ(problem_of({"dropout 1"}), "network: layer 1, \"dropout 1\": rate 1 is not accepted; use a number from 0 to 0.99");
  EXPECT_EQ(problem_of({"dropout nan"}),
            "network: layer 1, \"dropout nan\": rate nan is not accepted; use a number from 0 to 0.99");
}

TEST(Sequential, SaysWhatDoesNotFit) {
  EXPECT_EQ(problem_of({"conv 4 kernel 9", "flatten"}),
            "network: layer 1, \"conv 4 kernel 9\": its window does not fit into images of 8 x 8 pixels");
  EXPECT_EQ(problem_of({"flatten", "conv 4"}),
            "network: layer 2, \"conv 4\": its input has the shape [64], but it needs images [channels, rows, columns]");
  EXPECT_EQ(problem_of({"dense 4"}),
            "network: layer 1, \"dense 4\": its input has the shape [1, 8, 8]; put \"flatten\" before it");
  EXPECT_EQ(problem_of({"conv 6", "group_norm 4", "flatten"}),
            "network: layer 2, \"group_norm 4\": 4 groups do not divide the 6 channels of its input; use a divisor");
  EXPECT_EQ(problem_of({"max_pool 3 padding 2", "flatten"}),
            "network: layer 1, \"max_pool 3 padding 2\": padding 2 is more than half of 3; use at most 1");
  EXPECT_EQ(
      problem_of({"conv 4"}),
      "network: the last layer gives [4, 6, 6], but a softmax over classes needs a list of numbers; end with \"flatten\", "
      "\"mean\" or \"dense CLASSES\", or with \"ctc LENGTH\"");
  EXPECT_EQ(problem_of(std::vector<std::string>{}), "network: 0 layers are not accepted; list 1 to 1024");
  EXPECT_EQ(problem_of({"flatten", "dense 262144", "dense 262144", "dense 262144", "dense 10"}), "");
  EXPECT_EQ(problem_of(network({8, 8}, {"flatten"})),
            "input: [8, 8] is not accepted; use [channels, rows, columns], such as [1, 28, 28]");
  EXPECT_EQ(problem_of(network({262144, 262144, 1}, {"flatten"})),
            "input: [262144, 262144, 1] is not accepted; use [channels, rows, columns], such as [1, 28, 28]");
}

TEST(Sequential, SaysWhatDoesNotFitASequence) {
  EXPECT_EQ(problem_of({"block 4", "flatten"}),
            "network: layer 1, \"block 4\": its input has the shape [1, 8, 8], but it needs a sequence [tokens, width]; put "
            "\"patches\" or \"columns\" before it");
  EXPECT_EQ(problem_of({"patches 6", "block 4", "mean"}),
            "network: layer 2, \"block 4\": 4 heads do not divide the width 6 of its input; use a divisor");
  EXPECT_EQ(problem_of({"patches 6", "batch_norm", "mean"}),
            "network: layer 2, \"batch_norm\": its input is the sequence [4, 6], which has no channels; use \"layer_norm\"");
  EXPECT_EQ(problem_of({"layer_norm", "flatten"}),
            "network: layer 1, \"layer_norm\": its input has the shape [1, 8, 8], but it needs a sequence or a list; use "
            "\"group_norm 1\" for images");
  EXPECT_EQ(problem_of({"columns", "patches 4", "mean"}),
            "network: layer 2, \"patches 4\": its input has the shape [8, 8], but it needs images [channels, rows, columns]");
  EXPECT_EQ(problem_of({"patches 4 size 9", "mean"}),
            "network: layer 1, \"patches 4 size 9\": its window does not fit into images of 8 x 8 pixels");
  EXPECT_EQ(problem_of({"columns", "ctc 5"}),
            "network: layer 2, \"ctc 5\": targets of 5 characters may need 9 tokens (one for each character, one between equal "
            "neighbours), but its input has 8; use at most 4 characters or more tokens");
  EXPECT_EQ(problem_of({"columns", "ctc 4"}), "");
  EXPECT_EQ(problem_of({"columns", "dense 1", "ctc 4"}),
            "network: layer 3, \"ctc 4\": its input has one class for each token, but it needs at least 2: the blank and a "
            "character");
  EXPECT_EQ(problem_of({"columns", "ctc 2", "relu"}),
            "network: layer 3, \"relu\": it follows \"ctc\", which computes the loss; put \"ctc\" at the end");
}

TEST(Sequential, RefusesSizesBeyondAnyMachine) {
  EXPECT_EQ(
      problem_of(network({1, 4096, 4096}, {"conv 262144 kernel 1", "flatten"})),
      "network: layer 1, \"conv 262144 kernel 1\": its output has 4398046511104 elements and it has 524288 weights; use at "
      "most 2147483648 and 1099511627776");
}

// Numbers of weights and of elements inside of a block would overflow 64 bits.
TEST(Sequential, RefusesBlocksBeyondAnyMachine) {
  EXPECT_EQ(problem_of(network({8192, 262144, 1}, {"columns", "block 1", "mean"})),
            "network: layer 2, \"block 1\": its input has tokens of 2147483648 numbers; use at most 262144");
  EXPECT_EQ(problem_of(network({1, 1, 262144}, {"columns", "block 1 feed_forward 262144", "mean"})),
            "network: layer 2, \"block 1 feed_forward 262144\": it computes 262144 numbers for each of 262144 tokens, together "
            "more than 2147483648; use fewer tokens or a smaller feed_forward");
  EXPECT_EQ(problem_of(network({1, 4096, 262144}, {"columns", "block 1 feed_forward 1", "mean"})),
            "network: layer 2, \"block 1 feed_forward 1\": it computes 12288 numbers for each of 262144 tokens, together more "
            "than 2147483648; use fewer tokens or a smaller width");
  EXPECT_EQ(problem_of(network({1, 1, 8192}, {"columns", "block 1 feed_forward 262144", "mean"})), "");
}

TEST(Sequential, IsNotSplitOverTensorRanks) {
  const Description description = network({1, 8, 8}, {"flatten", "dense 10"});
  EXPECT_EQ(tensor_problem(description, 1), "");
  EXPECT_EQ(tensor_problem(description, 2), "is not accepted for model.type \"sequential\", whose parameters cannot be split");
  EXPECT_EQ(block_count(description), 3);
}

}  // namespace
}  // namespace trivet::model
