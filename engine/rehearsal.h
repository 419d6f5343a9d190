// Runs one rank's part of a job without doing the work: its Worker gets meta kernels, groups that only count, and arenas
// without memory, so what is counted is what the real code will do. Plans use it to count; with parts that advance a modelled
// clock, it says how long a step takes (autotune/rehearsed_step.h).
#pragma once

#include <functional>
#include <memory>

#include "comm/process_group.h"
#include "core/arena.h"
#include "core/stream.h"
#include "engine/channels.h"
#include "engine/offload_places.h"
#include "engine/plan.h"
#include "engine/worker.h"
#include "pipeline/event_graph.h"

namespace trivet {

// Replacements for the rehearsal's own parts, which take no time. All must outlive it.
struct RehearsalParts {
  kernels::Kernels* kernels = nullptr;
  std::function<std::unique_ptr<Stream>(pipeline::Queue queue, bool overlaps)> make_stream;  // empty: inline streams
  std::function<Group(Group meta)> place;  // empty: the groups stay as they are
  timeline::Recorder* recorder = nullptr;
};

class Rehearsal {
 public:
  // Rehearses the programs of `rank`. For the other ranks, `plan` needs only the layouts. All must outlive it.
  Rehearsal(const Plan& plan, const RankPlan& rank, const model::Model& model, const RehearsalParts& parts = {});

  // A step after all warm-ups: with the longest sequences of a curriculum, and the most tokens in every block.
  void train_step();
  // The step with these numbers.
  void train_step(const StepNumbers& numbers);
  // Rehearses a step, an evaluation and the start of a run, and sets the memory, files, traffic and counters of `rank`.
  void measure(RankPlan& rank);

 private:
  Microbatch microbatch() const;
  Microbatch microbatch_of(const StepNumbers& numbers) const;
  StepNumbers longest_step() const;
  const model::TokenDrop* token_drop() const;
  void train_earlier_steps();
  std::vector<int64_t> steps_of_new_shapes() const;
  void audited_step(const StepNumbers& numbers);
  void audited_steps();
  RankResources resources(const RehearsalParts& parts);
  void count_step(RankPlan& rank) const;
  void add_backend_memory(RankPlan& rank);
  int64_t staging_bytes();

  const Plan& plan_;
  const RankPlan& rank_;
  const model::Model& model_;
  MemoryMeter meter_;
  Arena activations_{"activations"}, buffers_{"buffers"};
  std::unique_ptr<kernels::Kernels> own_kernels_;
  kernels::Kernels& kernels_;
  std::unique_ptr<comm::ProcessGroup> world_;
  Channels channels_;
  OffloadPlaces offload_;
  Worker worker_;
};

}  // namespace trivet
