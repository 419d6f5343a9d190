// ZeRO (Rajbhandari et al., SC'20) is a table of lifetimes: for each stage it lists what a rank holds only as a shard.
//
//   stage  optimizer state  gradients  parameters    bytes per parameter with Adam in mixed precision, n ranks
//   0      whole            whole      whole         2 + 2 + 12
//   1      shard            whole      whole         2 + 2 + 12/n
//   2      shard            shard      whole         2 + (2 + 12)/n
//   3      shard            shard      shard         (2 + 2 + 12)/n
//
// By default, the gradients of a model in bf16 are summed in float32 and take 4 bytes instead of 2
// (data_types.grad_accum_dtype).
//
// A sharded gradient is whole from the first backward that adds to it until its REDUCE, a sharded parameter from UNSHARD until
// RESHARD. Small parameters (stage3_param_persistence_threshold) stay whole at stage 3, too, with the lifetimes of stage 2.
#pragma once

namespace trivet::zero {

struct Lifetimes {
  bool shard_optimizer = false, shard_gradients = false, shard_parameters = false;
};

constexpr Lifetimes lifetimes_of(int stage, bool persistent) {
  return {.shard_optimizer = stage >= 1, .shard_gradients = stage >= 2, .shard_parameters = stage >= 3 && !persistent};
}

}  // namespace trivet::zero
