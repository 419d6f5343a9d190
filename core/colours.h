// The colours of pictures, by what they show: a category has the same colour in every picture. Pages (report/page_drawing.h)
// and drawings of schedules and timelines (pipeline/render.h) take them from here; scripts/draw_zero has the same ones for
// memory.
//
// Computation has full colours; waiting and communication have pale ones.
#pragma once

#include <array>
#include <string_view>

namespace trivet {

struct NamedColour {
  std::string_view name, colour;
};

inline constexpr NamedColour kColours[] = {
    // what fills memory
    {"parameters", "#5a6fc0"},
    {"gradients", "#6db04e"},
    {"optimizer", "#b0603a"},  // its states; in a step the time of its update
    {"activations", "#d788b4"},
    {"buffers", "#5d7f8c"},
    // what a rank computes
    {"compute", "#4a86d6"},
    {"computes", "#4a86d6"},
    {"forward", "#4a86d6"},
    {"backward_input", "#3ea880"},
    {"backward_weight", "#f0a23c"},
    {"backward", "#2c8e98"},
    {"loss", "#ce5870"},
    {"recompute", "#9880c8"},
    // what it waits for, by the axis that it is for
    {"waits", "#b4bac6"},   // for all of them together
    {"bubble", "#d5cbea"},  // for another stage
    {"pipeline", "#d5cbea"},
    {"data", "#f2cf9d"},
    {"gather", "#f2cf9d"},
    {"reduce", "#dfae68"},
    {"tensor", "#a9cfd4"},
    {"context", "#b5d8a8"},
    {"expert", "#e6c1de"},
    {"offload", "#b9b2a0"},  // copies to and from the host
    {"meet", "#e3a7b4"},     // all ranks meet for the loss, the norm or ties
    // what else its program does
    {"communication", "#8a7f6d"},
    {"start", "#cfc7ba"},    // hands tensors over to be sent, gathered or reduced
    {"unknown", "#eeeeee"},  // nothing that was recorded
};

// Colours of lines and of parts that are no category, by their number.
inline constexpr std::array<std::string_view, 7> kSeriesColours{"#4a86d6", "#3ea880", "#f0a23c", "#ce5870",
                                                                "#9880c8", "#8d8d3c", "#5d7f8c"};

// Empty if the name is no category.
constexpr std::string_view colour_of(std::string_view name) {
  for (const NamedColour& each : kColours)
    if (each.name == name) return each.colour;
  return {};
}

}  // namespace trivet
