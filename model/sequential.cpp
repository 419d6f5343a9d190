#include "model/sequential.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/printable.h"
#include "model/classifier.h"
#include "model/listed_layer.h"

namespace trivet::model {
namespace {

// With sizes up to this limit and those of listed_layer.h, numbers of elements and bytes of one sample cannot overflow 64 bits.
constexpr int64_t kMostWeights = int64_t{1} << 40;  // per layer
constexpr size_t kMostLayers = 1024;

[[noreturn]] void refuse_list(const std::string& what) { throw std::invalid_argument(what); }

// Refuses outputs without pixels and sizes that no machine can hold.
void check_sizes(const Layer& layer, const Shape& input, const Shape& output) {
  if (layer.role() == LayerRole::Loss) return;
  if (output.elements() == 0)
    refuse_list(fmt::format("its window does not fit into images of {} x {} pixels", input[2], input[3]));
  int64_t weights = 0;
  for (const ParameterSpec& parameter : layer.parameters()) weights += parameter.shape.elements();
  if (output.elements() > kMostListedElements || weights > kMostWeights)
    refuse_list(fmt::format("its output has {} elements and it has {} weights; use at most {} and {}", output.elements(),
                            weights, kMostListedElements, kMostWeights));
}

bool ends_with_loss(const Model& model) { return !model.layers.empty() && model.layers.back()->role() == LayerRole::Loss; }

// Appends a layer to the model and moves `shape`, that of a batch of one sample, from its input to its output.
void append_layer(Model& model, const std::string& text, Shape& shape) {
  if (ends_with_loss(model)) refuse_list("it follows \"ctc\", which computes the loss; put \"ctc\" at the end");
  const LayerText read = read_listed_layer(text);
  const std::string name = fmt::format("{}.{}", model.layers.size() + 1, read.kind->name);
  std::unique_ptr<Layer> layer = make_listed_layer(read, name, shape);
  const Shape output = layer->output_shape(shape);
  const int64_t classes = shape[shape.dims() - 1];  // if the layer computes the loss
  check_sizes(*layer, shape, output);
  shape = output;
  model.names.push_back(name);
  model.layers.push_back(std::move(layer));
  if (!ends_with_loss(model)) return;
  model.sample.targets = {read.integer("length")};
  model.sample.classes = classes;
  model.sample.spelled = true;
}

std::optional<Problem> problem_of_input(const std::vector<int64_t>& input) {
  int64_t elements = 1;
  bool positive = input.size() == 3;
  for (const int64_t size : input) {
    positive = positive && size >= 1 && size <= kMostListedChannels;
    if (positive) elements *= size;
  }
  if (positive && elements <= kMostListedElements) return {};
  return Problem{
      "input", fmt::format("[{}] is not accepted; use [channels, rows, columns], such as [1, 28, 28]", fmt::join(input, ", "))};
}

// Makes the layers, or returns why there is no such model.
std::optional<Problem> make_layers(const Description& d, Model& model) {
  if (auto problem = problem_of_input(d.input)) return problem;
  if (d.network.empty() || d.network.size() > kMostLayers)
    return Problem{"network", fmt::format("{} layers are not accepted; list 1 to {}", d.network.size(), kMostLayers)};
  Shape shape{1, d.input[0], d.input[1], d.input[2]};
  model.sample = {.input_dtype = DType::Float32, .input = {d.input[0], d.input[1], d.input[2]}, .targets = {1}};
  for (size_t i = 0; i < d.network.size(); ++i) {
    try {
      append_layer(model, d.network[i], shape);
    } catch (const std::invalid_argument& what) {
      return Problem{"network", fmt::format("layer {}, \"{}\": {}", i + 1, printable(d.network[i]), what.what())};
    }
  }
  if (ends_with_loss(model)) return {};
  if (shape.dims() != 2)
    return Problem{"network", fmt::format("the last layer gives {}, but a softmax over classes needs a list of numbers; end "
                                          "with \"flatten\", \"mean\" or \"dense CLASSES\", or with "
                                          "\"ctc LENGTH\"",
                                          sample_text(shape))};
  model.sample.classes = shape[1];
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
  if (ends_with_loss(model)) return model;
  model.names.push_back("loss");
  model.layers.push_back(std::make_unique<Classifier>());
  return model;
}

Description unchanged(const Description& d) { return d; }

// Checks whether the list ends with a layer that computes the loss. It may have a problem elsewhere.
bool states_loss(const Description& d) {
  if (d.network.empty()) return false;
  std::string_view last = d.network.back();
  last.remove_prefix(std::min(last.find_first_not_of(' '), last.size()));
  return last.substr(0, last.find(' ')) == kCtc;
}

int64_t network_block_count(const Description& d) { return static_cast<int64_t>(d.network.size()) + (states_loss(d) ? 0 : 1); }

std::string layers_in_words(const Description& d) {
  return fmt::format("{} layer{}", d.network.size(), d.network.size() == 1 ? "" : "s");
}

std::string network_blocks_in_words(const Description& d) {
  return layers_in_words(d) + " of model.network" + (states_loss(d) ? "" : ", loss");
}

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
