// Llama as Meta publishes it: a folder with params.json and consolidated.00.pth, one file of torch.save for each
// tensor-parallel rank. Ranks have rows of some matrices and columns of others; queries and keys are permuted (flat_file.h).
#pragma once

#include <string>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::hugging_face {

bool is_meta_llama(FileSystem& files, const std::string& path);
foreign::ModelSource open_meta_llama(FileSystem& files, const std::string& path, const std::string& config);

}  // namespace trivet::hugging_face
