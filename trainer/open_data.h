// Opens the data that a config names.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/training_data.h"
#include "engine/config/config.h"

namespace trivet::trainer {

data::DataOptions data_options(const Config& config);

// Open the data that config.data names, of text and of images. Throw DataError for files that the model cannot read.
std::unique_ptr<data::TrainingData> open_text_data(const Config& config);
// `places`: numbers of a target of the model; more than one for texts.
std::unique_ptr<data::TrainingData> open_image_data(const Config& config, int64_t places = 1);

}  // namespace trivet::trainer

// Names that programs use that were written before trainer/ was a folder.
namespace trivet::data {
using trainer::data_options;
}
