#pragma once

#include <cstdint>

namespace trivet {

// The purpose of a layer. Input: it makes activations from samples by looking up tables; no product multiplies by its
// matrices. Loss: it computes the loss and has no output. Hidden: all others.
enum class LayerRole : uint8_t { Input, Hidden, Loss };

}  // namespace trivet
