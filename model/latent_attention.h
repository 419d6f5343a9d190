// The sizes of multi-head latent attention (model/latent_qkv.h).
#pragma once

#include <cstdint>

namespace trivet::model {

struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries have no latent
  int64_t key_value_rank = 0;
  int64_t rotary_size = 0;     // elements of a head that rotate
  int64_t value_size = 0;      // elements of a value; 0: as many as of a head
  double norm_epsilon = 1e-6;  // for the norms of latents

  bool enabled() const { return key_value_rank > 0; }
  int64_t value_size_of(int64_t head_size) const { return enabled() && value_size > 0 ? value_size : head_size; }
};

}  // namespace trivet::model
