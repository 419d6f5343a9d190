// Reading sets of images from PNG files.
#pragma once

#include <string>

#include "data/images.h"

namespace trivet::data {

// Adds the pixels of a file to a set, before its target is added. Throws DataError if the images are not alike.
void add_picture(const std::string& path, Images& images);

}  // namespace trivet::data
