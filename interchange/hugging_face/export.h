// Writes the weights of a checkpoint of ours as a model in Hugging Face's format. Tensors are copied a piece at a time,
// whatever layout saved the checkpoint; a file appears under its name when it is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file_system.h"
#include "data/options.h"

namespace trivet::hugging_face {

// The treatment of low-rank adapters (model/lora.h): they are added to the weights that they adapt, or written alone,
// in the format of PEFT (https://huggingface.co/docs/peft).
enum class LoraExport : uint8_t { None, Merged, Peft };

struct ExportOptions {
  std::string output;                  // a directory that does not exist yet, or is empty
  std::string like;                    // the folder of the model that training began with, or ""
  FileSystem* models = nullptr;        // where `like` is; null: where the checkpoint is
  std::string model_type;              // "": the first architecture that can store the model
  std::optional<DType> dtype = {};     // Float32, BFloat16 or Float16; none: as ExportOptions::like says, or the run
  std::string dtype_from = "--dtype";  // the source of dtype, for messages
  LoraExport lora = LoraExport::None;  // None if the model has no adapters, otherwise one of the others
  ChatTemplate chat_template = ChatTemplate::None;  // None: that of the config, data.chat_template
  bool keep_template = false;           // the template of `like` stays, which may write other tokens than the training
  int64_t shard_bytes = 5'000'000'000;  // a file is no larger, unless a single tensor is
};

struct Exported {
  std::string model_type;
  DType dtype = DType::Float32;
  std::vector<std::string> files;
  int64_t bytes = 0;               // size of all tensors
  std::vector<std::string> notes;  // things that a user of the model may miss
};

// With `like`, its config.json is kept as it is except for the dtype and a quantization, after a check that it describes the
// same model, and its tokenizer files are copied; of a training with a chat template, generation also stops at the token that
// ends its answers. With LoraExport::Peft only adapter_config.json and adapter_model.safetensors are written, and `like` is
// what they name as their base model. `checkpoint`: a step, or a directory of checkpoints, whose newest step is taken. Throws
// ConfigError, CheckpointError.
Exported export_model(FileSystem& files, const std::string& checkpoint, const ExportOptions& options);

}  // namespace trivet::hugging_face
