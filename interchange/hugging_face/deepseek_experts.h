// The mixtures of experts of DeepSeek-V3, which other models have, too: sigmoids with a bias for the choice,
// groups of experts, MLPs that compute every token, and MLPs alone in the first layers. Those of DeepSeek-V2 have a softmax
// and no bias.
#pragma once

#include "interchange/hugging_face/llama_with_experts.h"

namespace trivet::hugging_face {

// The values of keys that config.json does not state; 0: it must.
struct DeepSeekDefaults {
  int64_t experts = 0, chosen = 0, shared = 0, feed_forward = 1408, dense = 0;
  bool biased = true, normalize = false;
  double scale = 1;
  int64_t groups = 1, groups_per_token = 1;
  const char* other_name = "num_local_experts";  // another name of the key n_routed_experts
};

void read_deepseek_experts(ConfigFile& file, const DeepSeekDefaults& defaults, OrderedJson& model);
std::string deepseek_experts_obstacle(const model::Description& d, bool biased = true);
void write_deepseek_experts(const model::Description& d, OrderedJson& json);
checkpoint::MappedSource::Table deepseek_weights(const model::Description& d);
checkpoint::MappedSource::Table fused_deepseek_weights(const model::Description& d);
// Says why tensors of a layer that predicts a further token are left out (Architecture::why_left_out).
std::string why_further_layer_is_left_out(const foreign::TensorFiles& files, const model::Description& d,
                                          const std::string& name);

}  // namespace trivet::hugging_face
