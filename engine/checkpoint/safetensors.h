// The safetensors format (docs/checkpoint_format.md): a header that says where each tensor is, then the tensors' bytes.
//
//   u64 N | N bytes JSON, padded with spaces to 8 bytes | data, without holes or overlaps
//
// A header is checked completely before anything is allocated from its numbers. Errors are CheckpointErrors (CheckpointCorrupt)
// that name the file. Offsets are bytes from the start of the data.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "core/tensor_view.h"

namespace trivet::checkpoint {

struct TensorEntry {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  int64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  int64_t data_start = 0;  // bytes before the data

  const TensorEntry* find(std::string_view name) const;  // null when absent
};

// Orders the tensors (by alignment, then name), gives them offsets, and returns the bytes that come before the data.
std::string layout_safetensors(SafetensorsHeader& header);

// `start`: at least the first 8 + N bytes of a file whose header has N bytes; `file_bytes`: the size of the file.
SafetensorsHeader parse_safetensors_header(std::string_view start, int64_t file_bytes, const std::string& path);

}  // namespace trivet::checkpoint
