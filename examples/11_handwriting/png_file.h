// Writes gray images as PNG files.
#pragma once

#include <string>

#include "font.h"

namespace handwriting {

// An image of kRows x kColumns pixels. Throws std::runtime_error if the file cannot be written.
void write_png(const std::string& path, const Image& image);

}  // namespace handwriting
