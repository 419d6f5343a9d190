// The architectures of Hugging Face's models that can be read and written. Each is one file: its keys of config.json, and where
// it keeps the parameters of our model. To add one: a file that makes its Architecture, and an element of architectures().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/checkpoint/tensor_source.h"
#include "interchange/foreign/tensor_files.h"
#include "interchange/hugging_face/config_file.h"
#include "model/description.h"

namespace trivet::hugging_face {

using OrderedJson = nlohmann::ordered_json;

struct Architecture {
  std::string_view model_type;  // in config.json
  std::string_view class_name;  // transformers' name for the model with its LM head
  // Before the names of all tensors but the LM head's. A file of the model without its head lacks it: "h.0.ln_1.weight".
  std::string_view prefix;

  // Returns the section "model" of our config.
  OrderedJson (*read)(ConfigFile&);
  // Says why such a model cannot be stored as this architecture: "model.qkv_bias is true". Empty: it can.
  std::string (*obstacle)(const model::Description&);
  // Adds the keys that say the same as the description.
  void (*write)(const model::Description&, OrderedJson&);
  // Where each of our parameters is.
  checkpoint::MappedSource::Table (*weights)(const model::Description&);
  // The same if the experts of a layer are in two tensors (fused_experts.h); null: it has no experts.
  checkpoint::MappedSource::Table (*fused_weights)(const model::Description&) = nullptr;
  // The experts of a layer are together in a form of their own (transposed_experts.h).
  bool transposed_experts = false;
  // Weights of experts may be in MXFP4 (foreign::TensorFiles::join_mxfp4), which "quantization_config" of config.json then
  // says.
  bool may_be_mxfp4 = false;
  // Says why a tensor of the files is left out; empty: it is no part of such a model. Null: none is.
  std::string (*why_left_out)(const foreign::TensorFiles&, const model::Description&, const std::string& name) = nullptr;
};

// Lists architectures in the order in which export tries them: the first that can store a model stores it.
std::span<const Architecture> architectures();
// Throws ConfigError that lists the known ones.
const Architecture& architecture_of(const std::string& model_type, const std::string& path);
// The tensors that are float32 in files of every type (ParameterSpec::keeps_float32).
std::set<std::string> float32_tensors(const Architecture& architecture, const model::Description& description);

Architecture gpt2();
Architecture llama();
Architecture mistral();
Architecture qwen2();
Architecture qwen3();
Architecture phi3();
Architecture gemma2();
Architecture gemma3();
Architecture mixtral();
Architecture qwen3_moe();
Architecture qwen2_moe();
Architecture dots1();
Architecture deepseek_v2();
Architecture deepseek_v3();
Architecture glm4_moe_lite();
Architecture glm4_moe();
Architecture smollm3();
Architecture seed_oss();
Architecture granite();
Architecture olmo2();
Architecture olmo3();
Architecture olmoe();
Architecture exaone4();
Architecture ministral3();
Architecture gpt_oss();

}  // namespace trivet::hugging_face
