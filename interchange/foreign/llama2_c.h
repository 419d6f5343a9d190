// The .bin files of llama2.c, in float32 (docs/hugging_face.md).
//
//   version 0   7 integers, the embedding, the matrices; a negative size of the vocabulary: the head is a matrix of its own
//   version 1   "ak42", 1, 7 integers, a byte (the head is the embedding), up to byte 256; norms first
//
// Queries and keys are permuted (flat_file.h). Version 2, in 8 bits, is refused.
#pragma once

#include <string>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::foreign {

// Checks whether the file begins like one with a version, or is as long as one without must be.
bool is_llama2_c(const ReadableFile& file);
ModelSource open_llama2_c(FileSystem& files, const std::string& path);

}  // namespace trivet::foreign
