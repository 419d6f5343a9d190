// The layers that a config can list (model.network): what their texts say, and the layer for the shape of its input.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/layer.h"
#include "model/layer_text.h"

namespace trivet::model {

inline constexpr int64_t kMostListedChannels = 1 << 18;
inline constexpr int64_t kMostListedElements = int64_t{1} << 31;  // limit to a layer's output for one sample
inline constexpr std::string_view kCtc = "ctc";                   // the layer that computes a loss

// Both throw std::invalid_argument that says what is wrong and what is accepted.
LayerText read_listed_layer(std::string_view text);
// `input` is the shape of a batch of one sample: an image [1, C, H, W], a sequence [1, tokens, width] or a list [1, N]. `name`
// is the layer's name in the model, which identifies its random draws.
std::unique_ptr<Layer> make_listed_layer(const LayerText& text, const std::string& name, const Shape& input);

// The shape of a sample, without the batch.
std::string sample_text(const Shape& batch);

}  // namespace trivet::model
