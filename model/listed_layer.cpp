#include "model/listed_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "model/channel_norm.h"
#include "model/convolution.h"
#include "model/ctc_head.h"
#include "model/dense.h"
#include "model/pointwise.h"
#include "model/pooling.h"
#include "model/tokens.h"
#include "model/transformer_block.h"

namespace trivet::model {
namespace {

constexpr double kMostChannels = kMostListedChannels, kMostPixels = 1 << 12;

constexpr LayerNumber kConvOptions[] = {{.name = "kernel", .least = 1, .most = kMostPixels, .standard = 3},
                                        {.name = "stride", .least = 1, .most = kMostPixels, .standard = 1},
                                        {.name = "padding", .least = 0, .most = kMostPixels, .standard = 0}};
constexpr LayerNumber kPoolOptions[] = {{.name = "stride", .least = 1, .most = kMostPixels, .standard = {}},
                                        {.name = "padding", .least = 0, .most = kMostPixels, .standard = 0}};
constexpr LayerNumber kEpsilon{.name = "epsilon", .least = 1e-12, .most = 1, .integer = false, .standard = 1e-5};
constexpr LayerNumber kBatchNormOptions[] = {{.name = "momentum", .least = 0, .most = 1, .integer = false, .standard = 0.1},
                                             kEpsilon};
constexpr LayerNumber kNormOptions[] = {kEpsilon};
constexpr LayerNumber kPatchOptions[] = {{.name = "size", .least = 1, .most = kMostPixels, .standard = 4}};
constexpr LayerNumber kBlockOptions[] = {{.name = "feed_forward", .least = 1, .most = kMostChannels, .standard = {}},
                                         {.name = "dropout", .least = 0, .most = 0.99, .integer = false, .standard = 0},
                                         kEpsilon};
constexpr double kBlockDeviation = 0.02;  // for initial weights of a transformer block
constexpr LayerNumber kChannels{.name = "channels", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kSize{.name = "size", .least = 1, .most = kMostPixels, .standard = {}};
constexpr LayerNumber kGroups{.name = "groups", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kRate{.name = "rate", .least = 0, .most = 0.99, .integer = false, .standard = {}};
constexpr LayerNumber kTokenWidth{.name = "width", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kHeads{.name = "heads", .least = 1, .most = kMostChannels, .standard = {}};
constexpr LayerNumber kLength{.name = "length", .least = 1, .most = kMostPixels, .standard = {}};
constexpr LayerNumber kWidth{.name = "outputs", .least = 1, .most = kMostChannels, .standard = {}};

const LayerKind kKinds[] = {
    {"conv", "\"conv CHANNELS [kernel 3] [stride 1] [padding 0] [no_bias]\"", kChannels, kConvOptions, true},
    {"max_pool", "\"max_pool SIZE [stride SIZE] [padding 0]\"", kSize, kPoolOptions},
    {"average_pool", "\"average_pool SIZE [stride SIZE] [padding 0]\"", kSize, kPoolOptions},
    {"global_average_pool", "\"global_average_pool\"", {}, {}},
    {"batch_norm", "\"batch_norm [momentum 0.1] [epsilon 1e-5]\"", {}, kBatchNormOptions},
    {"group_norm", "\"group_norm GROUPS [epsilon 1e-5]\"", kGroups, kNormOptions},
    {"relu", "\"relu\"", {}, {}},
    {"gelu", "\"gelu\"", {}, {}},
    {"dropout", "\"dropout RATE\"", kRate, {}},
    {"flatten", "\"flatten\"", {}, {}},
    {"dense", "\"dense OUTPUTS [no_bias]\"", kWidth, {}, true},
    {"patches", "\"patches WIDTH [size 4] [no_bias]\"", kTokenWidth, kPatchOptions, true},
    {"columns", "\"columns\"", {}, {}},
    {"positions", "\"positions\"", {}, {}},
    {"block", "\"block HEADS [feed_forward 4 x WIDTH] [dropout 0] [epsilon 1e-5]\"", kHeads, kBlockOptions},
    {"layer_norm", "\"layer_norm [epsilon 1e-5]\"", {}, kNormOptions},
    {"mean", "\"mean\"", {}, {}},
    {kCtc, "\"ctc LENGTH\"", kLength, {}},
};

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

void require_image(const Shape& input) {
  if (input.dims() != 4)
    refuse(fmt::format("its input has the shape {}, but it needs images [channels, rows, columns]", sample_text(input)));
}

void require_sequence(const Shape& input) {
  if (input.dims() == 3) return;
  refuse(
      fmt::format("its input has the shape {}, but it needs a sequence [tokens, width]; put \"patches\" or \"columns\" "
                  "before it",
                  sample_text(input)));
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
  if (input.dims() == 3)
    refuse(fmt::format("its input is the sequence {}, which has no channels; use \"layer_norm\"", sample_text(input)));
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
  if (input.dims() == 4) refuse(fmt::format("its input has the shape {}; put \"flatten\" before it", sample_text(input)));
  return std::make_unique<Dense>(input[input.dims() - 1], text.integer("outputs"), text.bias);
}

std::unique_ptr<Layer> make_patches(const LayerText& text, const Shape& input) {
  require_image(input);
  return std::make_unique<Patches>(
      Patches::Options{.channels = input[1], .width = text.integer("width"), .size = text.integer("size"), .bias = text.bias});
}

std::unique_ptr<Layer> make_columns(const Shape& input) {
  require_image(input);
  return std::make_unique<Columns>();
}

std::unique_ptr<Layer> make_layer_norm(const LayerText& text, const Shape& input) {
  if (input.dims() == 4)
    refuse(fmt::format("its input has the shape {}, but it needs a sequence or a list; use \"group_norm 1\" for images",
                       sample_text(input)));
  return std::make_unique<LayerNorm>(input[input.dims() - 1], text["epsilon"], true);
}

// Refuses blocks whose weights or results could not be counted in 64 bits. The widest results of a block are queries, keys and
// values together, and those of the feed-forward layer.
void check_block_sizes(const Shape& input, int64_t feed_forward) {
  const int64_t tokens = input[1], width = input[2], widest = std::max(3 * width, feed_forward);
  if (width > kMostListedChannels)
    refuse(fmt::format("its input has tokens of {} numbers; use at most {}", width, kMostListedChannels));
  if (tokens > kMostListedElements / widest)
    refuse(fmt::format("it computes {} numbers for each of {} tokens, together more than {}; use fewer tokens or a smaller {}",
                       widest, tokens, kMostListedElements, widest == feed_forward ? "feed_forward" : "width"));
}

// Every token sees every other one.
std::unique_ptr<Layer> make_block(const LayerText& text, const std::string& name, const Shape& input) {
  require_sequence(input);
  const int64_t width = input[2], heads = text.integer("heads"), feed_forward = text.integer_or("feed_forward", 4 * width);
  if (width % heads != 0) refuse(fmt::format("{} heads do not divide the width {} of its input; use a divisor", heads, width));
  check_block_sizes(input, feed_forward);
  const double dropout = text["dropout"];
  return std::make_unique<TransformerBlock>(name,
                                            TransformerBlock::Options{.attention = {.hidden = width,
                                                                                    .heads = heads,
                                                                                    .key_value_heads = heads,
                                                                                    .dropout = dropout,
                                                                                    .causal = false,
                                                                                    .init_deviation = kBlockDeviation,
                                                                                    .init_deviation_out = kBlockDeviation},
                                                                      .mlp = {.hidden = width,
                                                                              .feed_forward = feed_forward,
                                                                              .init_deviation = kBlockDeviation,
                                                                              .init_deviation_out = kBlockDeviation},
                                                                      .norm_epsilon = text["epsilon"],
                                                                      .dropout = dropout});
}

// Every target of this length must have a path, even one of equal characters, which need a blank between them.
std::unique_ptr<Layer> make_ctc(const LayerText& text, const Shape& input) {
  require_sequence(input);
  const int64_t steps = input[1], length = text.integer("length");
  if (input[2] < 2) refuse("its input has one class for each token, but it needs at least 2: the blank and a character");
  if (2 * length - 1 > steps)
    refuse(
        fmt::format("targets of {} characters may need {} tokens (one for each character, one between equal neighbours), "
                    "but its input has {}; use at most {} characters or more tokens",
                    length, 2 * length - 1, steps, (steps + 1) / 2));
  return std::make_unique<CtcHead>();
}

std::unique_ptr<Layer> make_layer_of_sequence(const LayerText& text, const std::string& name, const Shape& input) {
  const std::string_view kind = text.kind->name;
  if (kind == "patches") return make_patches(text, input);
  if (kind == "columns") return make_columns(input);
  if (kind == "layer_norm") return make_layer_norm(text, input);
  if (kind == "block") return make_block(text, name, input);
  if (kind == kCtc) return make_ctc(text, input);
  require_sequence(input);
  if (kind == "positions") return std::make_unique<Positions>(input[1], input[2]);
  return std::make_unique<TokenMean>();
}

}  // namespace

std::string sample_text(const Shape& batch) { return to_string(Shape(batch.span().subspan(1))); }

LayerText read_listed_layer(std::string_view text) { return read_layer_text(text, kKinds); }

std::unique_ptr<Layer> make_listed_layer(const LayerText& text, const std::string& name, const Shape& input) {
  const std::string_view kind = text.kind->name;
  if (kind == "conv") return make_conv(text, input);
  if (kind.ends_with("_pool")) return make_pool(text, input);
  if (kind == "batch_norm" || kind == "group_norm") return make_norm_of_channels(text, input);
  if (kind == "relu") return std::make_unique<PointwiseLayer>(Pointwise::Relu);
  if (kind == "gelu") return std::make_unique<PointwiseLayer>(Pointwise::Gelu);
  if (kind == "dropout") return std::make_unique<Dropout>(name, text["rate"]);
  if (kind == "flatten") return std::make_unique<Flatten>();
  if (kind == "dense") return make_dense(text, input);
  return make_layer_of_sequence(text, name, input);
}

}  // namespace trivet::model
