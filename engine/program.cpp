#include "engine/program.h"

#include "pipeline/schedules/schedules.h"
#include "pipeline/validate.h"

namespace trivet {
namespace {

using namespace pipeline;

Schedule generate(ScheduleKind kind, int stages, int microbatches) {
  return kind == ScheduleKind::GPipe ? gpipe(stages, microbatches) : one_forward_one_backward(stages, microbatches);
}

Program forward_only(int microbatches) {
  Program program;
  for (int m = 0; m < microbatches; ++m) program.push_back({Op::Forward, 0, m});
  return program;
}

}  // namespace

BlockParameters block_parameters(const zero::ShardLayout& layout, int zero_stage) {
  BlockParameters parameters;
  for (const zero::BlockLayout& block : layout.blocks) {
    int64_t sharded = 0, gradients = 0;
    for (const zero::FlatGroup& group : block.groups) {
      if (zero_stage >= 3 && layout.ranks > 1 && !group.persistent) sharded += group.whole_elements;
      if (group.trainable) gradients += group.whole_elements;
    }
    parameters.used_by.push_back(block.used_blocks);
    parameters.sharded_elements.push_back(sharded);
    parameters.gradient_elements.push_back(gradients);
  }
  return parameters;
}

Programs make_programs(const Config& config, const zero::ShardLayout& layout, int64_t microbatches) {
  const int blocks = static_cast<int>(layout.blocks.size());
  const BlockParameters parameters = block_parameters(layout, config.zero.stage);
  const UnshardLimits limits{.max_live_elements = config.zero.stage3_max_live_parameters,
                             .max_reuse_distance = config.zero.stage3_max_reuse_distance,
                             .prefetch_elements = config.zero.stage3_prefetch_bucket_size};
  const bool shards_gradients = config.zero.stage >= 2 && layout.ranks > 1;
  const auto lower_zero = [&](const Program& program) {
    return prefetch(insert_unshard(program, parameters, limits), parameters, limits);
  };

  Programs programs;
  programs.microbatches = static_cast<int>(microbatches);
  programs.recompute = config.recompute == Recompute::Full;
  const Schedule schedule = generate(config.schedule, 1, programs.microbatches);
  validate(schedule, programs.microbatches);
  Program train = fuse_loss(expand_blocks(schedule[0], blocks), blocks - 1);
  if (programs.recompute) train = insert_recompute(train);
  train = insert_reduce(train, parameters, shards_gradients ? ReduceWhen::EveryMicrobatch : ReduceWhen::LastMicrobatch);
  programs.train = lower_zero(train);
  programs.evaluate = lower_zero(expand_blocks(forward_only(1), blocks));

  validate_lifetimes(programs.train, parameters);
  validate_lifetimes(programs.evaluate, parameters);
  return programs;
}

}  // namespace trivet
