// Formats that Trivet knows but cannot read, so that a user is told which program converts them.
#pragma once

#include <string>

#include "core/file_system.h"

namespace trivet::foreign {

// Throws CheckpointError (Usage): "PATH: WHAT".
[[noreturn]] void refuse_model(const std::string& path, const std::string& what);

// Throws CheckpointError (Usage) for a checkpoint of Megatron-LM or of torch.distributed.checkpoint, and for a single file of
// weights, whose model is unknown.
void refuse_unreadable_format(FileSystem& files, const std::string& path);

}  // namespace trivet::foreign
