// A model that another program saved, whatever its format, as a model of transformers: tensors under the names that
// transformers gives them, and the text of a config.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "interchange/foreign/tensor_files.h"

namespace trivet::foreign {

struct ModelSource {
  std::unique_ptr<TensorFiles> tensors;
  std::string config;            // the text of its config.json, or of one that says the same
  std::string config_path;       // the file that says so, for messages
  std::string tokenizer_folder;  // where its tokenizer is; empty: in the folder of config_path, if there is one
  std::string format;            // "llama2.c, version 1"; empty: transformers saved the model itself
  // Its matrices are stored [outputs, inputs], where transformers' GPT-2 stores [inputs, outputs].
  bool outputs_first = false;
  std::vector<std::string> notes;  // facts for the user

  std::string digest() const;  // covers the config and what the files say of their tensors
};

}  // namespace trivet::foreign
