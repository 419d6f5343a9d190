// Builds the model that a config describes.
#pragma once

#include "model/model.h"

namespace trivet {
struct Config;
}

namespace trivet::cli {

// The vocabulary size comes from the data, unless the config states it or the vocabulary is the 256 bytes.
model::Model model_of(const Config& config);

}  // namespace trivet::cli
