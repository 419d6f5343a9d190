// Makes a checkpoint of ours from a model of another program. The checkpoint is that of step 0 and holds weights, the
// model's config and, if Trivet can use it, the tokenizer. Tensors are copied a piece at a time.
#pragma once

#include <string>

#include "interchange/hugging_face/pretrained_model.h"

namespace trivet::hugging_face {

// The run_id of such a checkpoint: it has no optimizer states, so no run can continue from it.
inline constexpr const char* kImportedRunId = "imported";

struct Imported {
  std::string step;                // its directory
  std::vector<std::string> notes;  // parts that were left out
};

// `output`: a directory of checkpoints without steps, in `files`. Throws ConfigError if it has some. `models`
// holds the folder of the model.
Imported import_model(FileSystem& files, const PretrainedModel& pretrained, const std::string& output, FileSystem& models);
inline Imported import_model(FileSystem& files, const PretrainedModel& pretrained, const std::string& output) {
  return import_model(files, pretrained, output, files);
}

}  // namespace trivet::hugging_face
