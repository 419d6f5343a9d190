// The families of decoder-only transformers.
#pragma once

#include "model/family.h"

namespace trivet::model {

Family gpt_family();    // GPT-2 (Radford et al. 2019): learned positions, LayerNorm, GELU and biases
Family llama_family();  // Llama (Touvron et al. 2023): rotary positions, RMSNorm, SwiGLU, grouped queries and no biases

}  // namespace trivet::model
