// The two forms in which files hold the experts of a layer.
//
//   one by one   mlp.experts.3.gate_proj.weight [F, H], up_proj.weight [F, H], down_proj.weight [H, F]
//   fused        mlp.experts.gate_up_proj [E, 2F, H], mlp.experts.down_proj [E, H, F]
//
// Published models have the first form, and transformers saves it. The second one is that of transformers 5 in memory, and so
// of state dicts and of checkpoints of DeepSpeed; ours is the same without the first dim. E experts, H hidden, F feed-forward.
#pragma once

#include "interchange/foreign/tensor_files.h"
#include "model/description.h"

namespace trivet::hugging_face {

bool holds_fused_experts(const foreign::TensorFiles& files);
// Makes matrices of fused tensors. Throws CheckpointError if one has another shape than the description says, or if other
// experts are stored one by one.
void settle_fused_experts(foreign::TensorFiles& files, const model::Description& description);

}  // namespace trivet::hugging_face
