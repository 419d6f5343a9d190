// The safetensors format (docs/checkpoint_format.md): a header that says where each tensor is, then the tensors' bytes.
//
//   u64 N | N bytes JSON, padded with spaces to 8 bytes | data, without holes or overlaps
//
// A header is checked completely before anything is allocated from its numbers. Errors are CheckpointErrors (CheckpointCorrupt)
// that name the file. Offsets are bytes from the start of the data.
#pragma once

#include <map>
#include <span>
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

SafetensorsHeader read_safetensors_header(const ReadableFile& file);
// The same for a header that is already in memory. `start`: at least the first 8 + N bytes; `file_bytes`: the size of the file.
SafetensorsHeader parse_safetensors_header(std::string_view start, int64_t file_bytes, const std::string& path);

struct NamedTensor {
  std::string name;
  ConstTensorView data;
};

// Writes and syncs a complete file in one call, for other programs to read.
void write_safetensors(FileSystem& files, const std::string& path, std::span<const NamedTensor> tensors);
// Reads one tensor of a file; `out` must have the entry's dtype and element count.
void read_tensor(const ReadableFile& file, const SafetensorsHeader& header, const TensorEntry& entry, TensorView out);

}  // namespace trivet::checkpoint
