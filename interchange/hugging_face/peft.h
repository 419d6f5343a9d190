// Low-rank adapters in the format of PEFT: a folder with adapter_config.json and adapter_model.safetensors, whose tensors are
// named base_model.model.MODULE.lora_A.weight [r, in] and base_model.model.MODULE.lora_B.weight [out, r]. Experts
// have adapters of parameters, not of modules, and one wraps the other (peft_experts.h):
//
//   MODULE                                       its parameter (target_parameters)
//   model.layers.3.mlp.experts.base_layer        gate_up_proj; without base_layer if down_proj has no adapter
//   model.layers.3.mlp.experts                   down_proj
#pragma once

#include <string>

#include "engine/checkpoint/tensor_source.h"
#include "interchange/hugging_face/architecture.h"
#include "model/description.h"

namespace trivet::hugging_face {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterWeightsName = "adapter_model.safetensors";

struct PeftAdapters {
  checkpoint::MappedSource::Table tensors;  // theirs, and where ours are; B of experts as PeftExperts shows them
  std::string config;                       // the text of adapter_config.json
  bool of_parameters = false;               // some adapt parameters, not modules
};

// `base_model`: the folder or name of the model that they adapt, or "". Throws ConfigError if the architecture stores in one
// tensor what has an adapter of its own here.
PeftAdapters peft_adapters(const Architecture& architecture, const model::Description& description,
                           const std::string& base_model);

}  // namespace trivet::hugging_face
