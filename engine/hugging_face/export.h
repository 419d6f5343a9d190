// Writes the weights of a checkpoint of ours as a model in Hugging Face's format. Tensors are copied a piece at a time,
// whatever layout saved the checkpoint; a file appears under its name when it is complete.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file_system.h"

namespace trivet::hugging_face {

struct ExportOptions {
  std::string output;                   // a directory that does not exist yet, or is empty
  std::string like;                     // the folder of the model that training began with, or ""
  std::string model_type;               // "": the first architecture that can store the model
  DType dtype = DType::Float32;         // or BFloat16, Float16
  int64_t shard_bytes = 5'000'000'000;  // a file is no larger, unless a single tensor is
};

struct Exported {
  std::string model_type;
  std::vector<std::string> files;
  int64_t bytes = 0;               // of all tensors
  std::vector<std::string> notes;  // what a user of the model may miss
};

// With `like`, its config.json is kept as it is except for the dtype, after a check that it describes the same model, and its
// tokenizer files are copied. `checkpoint`: a step, or a directory of checkpoints, whose newest step is taken. Throws
// ConfigError, CheckpointError.
Exported export_model(FileSystem& files, const std::string& checkpoint, const ExportOptions& options);

}  // namespace trivet::hugging_face
