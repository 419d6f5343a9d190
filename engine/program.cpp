#include "engine/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/config/refuse.h"
#include "pipeline/schedules/schedules.h"
#include "pipeline/stages.h"
#include "pipeline/validate.h"

namespace trivet {
namespace {

using namespace pipeline;

// Runs each of the rank's stages in turn, for one microbatch.
Program forward_only(const StageMap& stages, int rank) {
  Program program;
  for (int stage = 0; stage < stages.stages(); ++stage) {
    if (stages.rank_of_stage[stage] != rank) continue;
    if (stages.receives_forward(stage)) program.push_back({Op::ReceiveForward, stage, 0});
    program.push_back({Op::Forward, stage, 0});
    if (stages.receives_backward(stage)) program.push_back({Op::SendForward, stage, 0});
  }
  return program;
}

// Runs the forward of each of the rank's stages in turn, then their backward, for one microbatch.
Program forward_and_backward(const StageMap& stages, int rank) {
  Program program = forward_only(stages, rank);
  for (int stage = stages.stages() - 1; stage >= 0; --stage) {
    if (stages.rank_of_stage[stage] != rank) continue;
    if (stages.receives_backward(stage)) program.push_back({Op::ReceiveBackward, stage, 0});
    program.push_back({Op::BackwardInput, stage, 0});
    program.push_back({Op::BackwardWeight, stage, 0});
    if (stages.receives_forward(stage)) program.push_back({Op::SendBackward, stage, 0});
  }
  return program;
}

// Block 0, which reads samples, is not recomputed, because it keeps little more than the samples; nor are blocks that look up
// tables, nor the one that computes the loss, of which nothing outlives the instruction that runs it.
std::vector<Recompute> recompute_of_blocks(const Config& config, const zero::ShardLayout& layout) {
  constexpr int kFirst = 1;
  const int blocks = static_cast<int>(layout.blocks.size());
  std::vector<Recompute> recompute(blocks, Recompute::None);
  for (int block = kFirst; block < blocks; ++block)
    if (layout.blocks[block].role == LayerRole::Hidden && (block - kFirst) % config.recompute_every == 0)
      recompute[block] = config.recompute;
  return recompute;
}

int loss_block(const zero::ShardLayout& layout) {
  const auto found = std::ranges::find(layout.blocks, LayerRole::Loss, &zero::BlockLayout::role);
  if (found == layout.blocks.end()) throw std::logic_error("program: no block computes the loss");
  return static_cast<int>(found - layout.blocks.begin());
}

std::vector<bool> wholly_recomputed(const std::vector<Recompute>& recompute) {
  std::vector<bool> blocks;
  for (const Recompute what : recompute) blocks.push_back(what == Recompute::Full);
  return blocks;
}

Program insert_offload(const Program& program, const Config& config, const std::vector<Recompute>& recompute) {
  return config.offloads_inputs() ? insert_offload(program, wholly_recomputed(recompute)) : program;
}

std::vector<Tie> ties_of(const zero::ShardLayout& layout) {
  std::vector<Tie> ties;
  for (const zero::TiedWeight& tied : layout.ties)
    // A frozen weight has no gradients to add.
    if (layout.blocks[tied.owner_block].here ? layout.blocks[tied.owner_block].groups[tied.owner.group].trainable
                                             : layout.blocks[tied.user_block].groups[tied.user.group].trainable)
      ties.push_back({tied.owner_block, tied.user_block});
  return ties;
}

}  // namespace

int StageMap::stage_of_block(int block) const {
  const auto after = std::upper_bound(first_blocks.begin(), first_blocks.end(), block);
  return static_cast<int>(after - first_blocks.begin()) - 1;
}

namespace {

// The file determines the numbers of ranks and microbatches, which must match the config.
Schedule schedule_of_file(const Config& config, int ranks, int microbatches) {
  const std::string& path = config.pipeline.schedule_file;
  Schedule schedule = read_schedule(path);
  if (static_cast<int>(schedule.size()) != ranks)
    config::refuse(config, "pipeline.schedule",
                   fmt::format("\"{}\" is a schedule for parallel.pipeline {}, but it is {} here; make them equal", path,
                               schedule.size(), ranks));
  if (const int of_file = count_microbatches(schedule); of_file != microbatches)
    config::refuse(config, "pipeline.schedule",
                   fmt::format("\"{}\" is for {} microbatches, but a step has {} on each data rank "
                               "(gradient_accumulation_steps); make them equal",
                               path, of_file, microbatches));
  return schedule;
}

}  // namespace

Schedule make_schedule(const Config& config, int microbatches) {
  const int ranks = static_cast<int>(config.parallel.pipeline), chunks = static_cast<int>(chunks_of(config.pipeline));
  const bool trivial = ranks == 1 && chunks == 1;
  // On a single rank, the other schedules differ from 1F1B only in memory. GPipe is kept, since it is chosen to run all
  // forwards first.
  const ScheduleKind kind = trivial && config.pipeline.schedule != ScheduleKind::GPipe ? ScheduleKind::OneForwardOneBackward
                                                                                       : config.pipeline.schedule;
  Schedule schedule = config.pipeline.schedule_file.empty() ? generate(kind, {ranks, microbatches, chunks})
                                                            : schedule_of_file(config, ranks, microbatches);
  const bool from_file = !config.pipeline.schedule_file.empty();
  validate(schedule, microbatches);
  schedule = insert_send_receive(schedule, from_file ? BackwardSends::AfterWeights : backward_sends(kind));
  validate(schedule, microbatches);
  return schedule;
}

BlockParameters block_parameters(const zero::ShardLayout& layout, int zero_stage) {
  BlockParameters parameters;
  for (const zero::BlockLayout& block : layout.blocks) {
    int64_t sharded = 0, gradients = 0;
    for (const zero::FlatGroup& group : block.groups) {
      const bool weights = group.role != zero::GroupRole::TiedGradients;
      const bool gathered = group.shards > 1 || group.weights != zero::Placement::Device || group.quantized;
      if (zero_stage >= 3 && gathered && !group.persistent && weights) sharded += group.whole_elements;
      if (group.trainable && (group.role == zero::GroupRole::Own || (zero_stage >= 2 && group.shards > 1)))
        gradients += group.whole_elements;
    }
    parameters.weights_of.push_back(block.weight_blocks);
    parameters.gradients_of.push_back(block.gradient_blocks);
    parameters.sharded_elements.push_back(sharded);
    parameters.gradient_elements.push_back(gradients);
  }
  return parameters;
}

Programs make_programs(const Config& config, const Schedule& schedule, const StageMap& stages, int pipeline_rank,
                       const zero::ShardLayout& layout, int microbatches) {
  BlockParameters parameters = block_parameters(layout, config.zero.stage);
  for (int block = 0; block < stages.blocks(); ++block) parameters.stage_of.push_back(stages.stage_of_block(block));
  const UnshardLimits limits{.release = config.zero.stage3_release,
                             .max_live_elements = config.zero.stage3_max_live_parameters,
                             .max_reuse_distance = config.zero.stage3_max_reuse_distance,
                             .prefetch_elements = config.zero.stage3_prefetch_bucket_size};
  const bool shards_gradients = config.zero.stage >= 2 && layout.is_divided();
  const std::vector<Tie> ties = ties_of(layout);
  const auto lower_zero = [&](const Program& program) {
    return prefetch(insert_unshard(program, parameters, limits), parameters, limits);
  };

  Programs programs;
  programs.microbatches = microbatches;
  programs.recompute = recompute_of_blocks(config, layout);
  Program train = fuse_loss(expand_blocks(schedule[pipeline_rank], stages.first_blocks), loss_block(layout));
  train = insert_recompute(train, wholly_recomputed(programs.recompute));
  if (!shards_gradients) train = insert_tie(train, ties, parameters.stage_of);
  train = insert_reduce(train, parameters, shards_gradients ? ReduceWhen::EveryMicrobatch : ReduceWhen::LastMicrobatch, ties);
  if (shards_gradients) train = insert_tie(train, ties, parameters.stage_of);
  programs.train = insert_sum_loss(insert_offload(lower_zero(train), config, programs.recompute));
  programs.evaluate = lower_zero(expand_blocks(forward_only(stages, pipeline_rank), stages.first_blocks));
  if (config.audit.every_steps > 0) {
    const Program audit =
        fuse_loss(expand_blocks(forward_and_backward(stages, pipeline_rank), stages.first_blocks), loss_block(layout));
    programs.audit =
        insert_offload(lower_zero(insert_recompute(audit, wholly_recomputed(programs.recompute))), config, programs.recompute);
  }

  validate_lifetimes(programs.train, parameters);
  validate_lifetimes(programs.evaluate, parameters);
  parameters.gradient_elements.assign(parameters.gradient_elements.size(), 0);  // an audit reduces no gradients
  validate_lifetimes(programs.audit, parameters);
  return programs;
}

}  // namespace trivet
