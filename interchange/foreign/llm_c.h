// The model files of llm.c's GPT-2: 256 integers, then the tensors of each kind, of all layers (docs/hugging_face.md).
//
//   20240326, version (3: float32, 5: bfloat16), positions, vocabulary, layers, heads, hidden, rows of the embedding
//
// Matrices are stored [outputs, inputs]. The rows of the embedding after those of the vocabulary are padding, which is left
// out.
#pragma once

#include <string>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::foreign {

bool is_llm_c(const ReadableFile& file);
ModelSource open_llm_c(FileSystem& files, const std::string& path);

}  // namespace trivet::foreign
