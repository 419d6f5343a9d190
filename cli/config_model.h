// The model that a config describes.
#pragma once

#include "engine/config/config.h"
#include "model/model.h"

namespace trivet::cli {

// The data decides the vocabulary's size unless the config states it or it is that of bytes.
model::Model model_of(const Config& config);

}  // namespace trivet::cli
