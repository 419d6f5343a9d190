// A model and a low-rank adapter of it (LoRA) in the format of PEFT (https://huggingface.co/docs/peft): the weights are read
// with the adapter added to them, W + scale B A.
//
// The folder holds adapter_config.json and adapter_model.safetensors or adapter_model.bin. The model is the one in the same
// folder, if there is one, as in transformers; otherwise adapter_config.json names its folder.
#pragma once

#include <string>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::hugging_face {

// Checks whether the folder holds an adapter or a part of one.
bool holds_adapter(FileSystem& files, const std::string& folder);

// Throws ConfigError naming the key of adapter_config.json, and CheckpointError naming the file.
foreign::ModelSource open_adapted(FileSystem& files, const std::string& folder);

}  // namespace trivet::hugging_face
