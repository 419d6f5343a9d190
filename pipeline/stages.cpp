#include "pipeline/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace trivet::pipeline {
namespace {

void add_block(Stage& stage, int rank, const Instruction& i) {
  if (stage.rank >= 0 && stage.rank != rank)
    throw std::logic_error(fmt::format("schedule: rank {} and rank {} both run stage {} ({}); a stage must be on one rank",
                                       stage.rank, rank, i.stage, to_string(i)));
  const bool first = stage.rank < 0;
  stage.rank = rank;
  stage.first_block = first ? i.block : std::min(stage.first_block, i.block);
  stage.last_block = first ? i.block : std::max(stage.last_block, i.block);
}

}  // namespace

std::vector<Stage> find_stages(const Schedule& schedule) {
  std::vector<Stage> stages;
  for (size_t rank = 0; rank < schedule.size(); ++rank)
    for (const Instruction& i : schedule[rank]) {
      if (!computes(i.op)) continue;
      if (static_cast<size_t>(i.stage) >= stages.size()) stages.resize(i.stage + 1);
      add_block(stages[i.stage], static_cast<int>(rank), i);
    }
  for (size_t stage = 0; stage < stages.size(); ++stage)
    if (stages[stage].rank < 0) throw std::logic_error(fmt::format("schedule: no rank runs stage {}", stage));
  return stages;
}

std::vector<int> stage_ranks(const Schedule& schedule) {
  std::vector<int> ranks;
  for (const Stage& stage : find_stages(schedule)) ranks.push_back(stage.rank);
  return ranks;
}

int count_microbatches(const Schedule& schedule) {
  int highest = -1;
  for (const Program& program : schedule)
    for (const Instruction& i : program) highest = std::max(highest, i.microbatch);
  return highest + 1;
}

}  // namespace trivet::pipeline
