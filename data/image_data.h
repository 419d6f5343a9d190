// Images as the data of a run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/image_source.h"
#include "data/training_data.h"

namespace trivet::data {

// `validation`: null if there is none. `class_names`: of folders, in order; empty: classes are called by their numbers.
std::unique_ptr<TrainingData> image_data(std::shared_ptr<const ImageSource> train,
                                         std::shared_ptr<const ImageSource> validation, std::vector<std::string> class_names,
                                         std::vector<std::string> notes);

}  // namespace trivet::data
