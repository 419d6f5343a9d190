#include "model/sequential.h"

#include <fmt/format.h>

#include <stdexcept>

#include "core/printable.h"
#include "model/channel_norm.h"
#include "model/classifier.h"
#include "model/convolution.h"
#include "model/dense.h"
#include "model/layer_text.h"
#include "model/pointwise.h"
#include "model/pooling.h"

namespace trivet::model {
namespace {

// With sizes up to these limits, numbers of elements and bytes of one sample cannot overflow 64 bits.
constexpr double kMostChannels = 1 << 18, kMostPixels = 1 << 12;
constexpr int64_t kMostElements = int64_t{1} << 31;  // of an activation of one sample
constexpr int64_t kMostWeights = int64_t{1} << 40;   // of a layer
constexpr size_t kMostLayers = 1024;

constexpr LayerNumber kConvOptions[] = {{.name = "kernel", .least = 1, .most = kMostPixels, .standard = 3},
                                        {.name = "stride", .least = 1, .most = kMostPixels, .standard = 1},
                                        {.name = "padding", .least = 0, .most = kMostPixels, .standard = 0}};
constexpr LayerNumber kPoolOptions[] = {{.name = "stride", .least = 1, .most = kMostPixels, .standard = {}},
                                        {.name = "padding", .least = 0, .most = kMostPixels, .standard = 0}};
constexpr LayerNumber kEpsilon{.name = "epsilon", .least = 1e-12, .most = 1, .integer = false, .standard = 1e-5};
constexpr LayerNumber kBatchNormOptions[] = {{.name = "momentum", .least = 0, .most = 1, .integer = false, .standard = 0.1},
                                             kEpsilon};
constexpr LayerNumber kGroupNormOptions[] = {kEpsilon};
constexpr LayerNumber kChannels{.name = "channels", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kSize{.name = "size", .least = 1, .most = kMostPixels, .standard = {}};
constexpr LayerNumber kGroups{.name = "groups", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kRate{.name = "rate", .least = 0, .most = 0.99, .integer = false, .standard = {}};
constexpr LayerNumber kWidth{.name = "outputs", .least = 1, .most = kMostChannels, .standard = {}};

const LayerKind kKinds[] = {
    {"conv", "\"conv CHANNELS [kernel 3] [stride 1] [padding 0] [no_bias]\"", kChannels, kConvOptions, true},
    {"max_pool", "\"max_pool SIZE [stride SIZE] [padding 0]\"", kSize, kPoolOptions},
    {"average_pool", "\"average_pool SIZE [stride SIZE] [padding 0]\"", kSize, kPoolOptions},
    {"global_average_pool", "\"global_average_pool\"", {}, {}},
    {"batch_norm", "\"batch_norm [momentum 0.1] [epsilon 1e-5]\"", {}, kBatchNormOptions},
    {"group_norm", "\"group_norm GROUPS [epsilon 1e-5]\"", kGroups, kGroupNormOptions},
    {"relu", "\"relu\"", {}, {}},
    {"gelu", "\"gelu\"", {}, {}},
    {"dropout", "\"dropout RATE\"", kRate, {}},
    {"flatten", "\"flatten\"", {}, {}},
    {"dense", "\"dense OUTPUTS [no_bias]\"", kWidth, {}, true},
};

// The shape of a sample, without the batch.
std::string sample_text(const Shape& batch) { return to_string(Shape(batch.span().subspan(1))); }

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

void require_image(const Shape& input) {
  if (input.dims() != 4)
    refuse(fmt::format("its input has the shape {}, but it needs images [channels, rows, columns]", sample_text(input)));
}

std::unique_ptr<Layer> make_conv(const LayerText& text, const Shape& input) {
  require_image(input);
  return std::make_unique<Convolution>(Convolution::Options{.in_channels = input[1],
                                                            .out_channels = text.integer("channels"),
                                                            .kernel = text.integer("kernel"),
                                                            .stride = text.integer("stride"),
                                                            .padding = text.integer("padding"),
                                                            .bias = text.bias});
}

std::unique_ptr<Layer> make_pool(const LayerText& text, const Shape& input) {
  require_image(input);
  if (text.kind->name == "global_average_pool")
    return std::make_unique<Pool>(Pool::Options{.kind = kernels::Pooling::Average, .global = true});
  const int64_t size = text.integer("size"), padding = text.integer("padding");
  if (2 * padding > size) refuse(fmt::format("padding {} is more than half of {}; use at most {}", padding, size, size / 2));
  return std::make_unique<Pool>(
      Pool::Options{.kind = text.kind->name == "max_pool" ? kernels::Pooling::Max : kernels::Pooling::Average,
                    .size = size,
                    .stride = text.integer_or("stride", size),
                    .padding = padding});
}

std::unique_ptr<Layer> make_norm_of_channels(const LayerText& text, const Shape& input) {
  ChannelNorm::Options options{.channels = input[1], .epsilon = text["epsilon"]};
  if (text.kind->name == "batch_norm") {
    options.momentum = text["momentum"];
    return std::make_unique<ChannelNorm>(options);
  }
  options.groups = text.integer("groups");
  if (options.channels % options.groups != 0)
    refuse(
        fmt::format("{} groups do not divide the {} channels of its input; use a divisor", options.groups, options.channels));
  return std::make_unique<ChannelNorm>(options);
}

std::unique_ptr<Layer> make_dense(const LayerText& text, const Shape& input) {
  if (input.dims() != 2) refuse(fmt::format("its input has the shape {}; put \"flatten\" before it", sample_text(input)));
  return std::make_unique<Dense>(input[1], text.integer("outputs"), text.bias);
}

std::unique_ptr<Layer> make_layer(const LayerText& text, const std::string& name, const Shape& input) {
  const std::string_view kind = text.kind->name;
  if (kind == "conv") return make_conv(text, input);
  if (kind.ends_with("_pool")) return make_pool(text, input);
  if (kind.ends_with("_norm")) return make_norm_of_channels(text, input);
  if (kind == "relu") return std::make_unique<PointwiseLayer>(Pointwise::Relu);
  if (kind == "gelu") return std::make_unique<PointwiseLayer>(Pointwise::Gelu);
  if (kind == "dropout") return std::make_unique<Dropout>(name, text["rate"]);
  if (kind == "flatten") return std::make_unique<Flatten>();
  return make_dense(text, input);
}

// Refuses outputs without pixels and sizes that no machine can hold.
void check_sizes(const Layer& layer, const Shape& input, const Shape& output) {
  if (output.elements() == 0) refuse(fmt::format("its window does not fit into images of {} x {} pixels", input[2], input[3]));
  int64_t weights = 0;
  for (const ParameterSpec& parameter : layer.parameters()) weights += parameter.shape.elements();
  if (output.elements() > kMostElements || weights > kMostWeights)
    refuse(fmt::format("its output has {} elements and it has {} weights; use at most {} and {}", output.elements(), weights,
                       kMostElements, kMostWeights));
}

// Appends a layer to the model and moves `shape`, that of a batch of one sample, from its input to its output.
void append_layer(Model& model, const std::string& text, Shape& shape) {
  const LayerText read = read_layer_text(text, kKinds);
  const std::string name = fmt::format("{}.{}", model.layers.size() + 1, read.kind->name);
  std::unique_ptr<Layer> layer = make_layer(read, name, shape);
  const Shape output = layer->output_shape(shape);
  check_sizes(*layer, shape, output);
  shape = output;
  model.names.push_back(name);
  model.layers.push_back(std::move(layer));
}

std::optional<Problem> problem_of_input(const std::vector<int64_t>& input) {
  int64_t elements = 1;
  bool positive = input.size() == 3;
  for (const int64_t size : input) {
    positive = positive && size >= 1 && size <= static_cast<int64_t>(kMostChannels);
    if (positive) elements *= size;
  }
  if (positive && elements <= kMostElements) return {};
  return Problem{
      "input", fmt::format("[{}] is not accepted; use [channels, rows, columns], such as [1, 28, 28]", fmt::join(input, ", "))};
}

// Makes the layers, or returns why there is no such model.
std::optional<Problem> make_layers(const Description& d, Model& model) {
  if (auto problem = problem_of_input(d.input)) return problem;
  if (d.network.empty() || d.network.size() > kMostLayers)
    return Problem{"network", fmt::format("{} layers are not accepted; list 1 to {}", d.network.size(), kMostLayers)};
  Shape shape{1, d.input[0], d.input[1], d.input[2]};
  for (size_t i = 0; i < d.network.size(); ++i) {
    try {
      append_layer(model, d.network[i], shape);
    } catch (const std::invalid_argument& what) {
      return Problem{"network", fmt::format("layer {}, \"{}\": {}", i + 1, printable(d.network[i]), what.what())};
    }
  }
  if (shape.dims() != 2)
    return Problem{"network", fmt::format("the last layer gives {}, but a softmax over classes needs a list of numbers; end "
                                          "with \"flatten\" or \"dense CLASSES\"",
                                          sample_text(shape))};
  model.sample = {
      .input_dtype = DType::Float32, .input = {d.input[0], d.input[1], d.input[2]}, .targets = {1}, .classes = shape[1]};
  return {};
}

std::optional<Problem> find_network_problem(const Description& d) {
  Model model;
  return make_layers(d, model);
}

Model build_network(const Description& d) {
  Model model;
  if (const auto problem = make_layers(d, model)) throw std::logic_error("sequential: " + problem->text);
  model.description = d;
  model.names.push_back("loss");
  model.layers.push_back(std::make_unique<Classifier>());
  return model;
}

Description unchanged(const Description& d) { return d; }

int64_t network_block_count(const Description& d) { return static_cast<int64_t>(d.network.size()) + 1; }

std::string layers_in_words(const Description& d) {
  return fmt::format("{} layer{}", d.network.size(), d.network.size() == 1 ? "" : "s");
}

std::string network_blocks_in_words(const Description& d) { return layers_in_words(d) + " of model.network, loss"; }

std::string network_in_words(const Description& d) {
  return fmt::format("{} on images [{}]", layers_in_words(d), fmt::join(d.input, ", "));
}

std::string network_tensor_problem(const Description&, int64_t ranks, bool) {
  return ranks == 1 ? "" : "is not accepted for model.type \"sequential\", whose parameters cannot be split";
}

constexpr std::string_view kNetworkKeys[] = {"input", "network"};

}  // namespace

Family sequential_family() {
  return {.type = Type::Sequential,
          .meaning = "images through a list of layers",
          .keys = kNetworkKeys,
          .reads_images = true,
          .with_defaults = unchanged,
          .block_count = network_block_count,
          .blocks_in_words = network_blocks_in_words,
          .in_words = network_in_words,
          .find_problem = find_network_problem,
          .build = build_network,
          .tensor_problem = network_tensor_problem};
}

}  // namespace trivet::model
