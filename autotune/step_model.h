// Predicts how long a step takes and what a device holds, on a cluster that is only described: what the blocks do
// (block_work.h) counts at the device's rates, collectives follow the alpha-beta model, and pipelines their schedules. This is
// fast enough to try thousands of layouts; a Plan says exactly what the best of them will hold. Time and memory are in one
// class, because both are sums over the same stages.
//
//   kernel       max(FLOPs / (matrix rate x efficiency), bytes / memory bandwidth, launch)
//                products of experts: of rows in tiles of kTileRows, of which each expert leaves half of one empty on average
//   stage        its blocks' kernels, tensor and context axis, forward and backward of a microbatch; the slowest stage counts
//   context axis of c ranks: each has 1/c of the tokens of a sequence and, in attention, 1/c of the heads; it waits for four
//                all-to-alls a layer, each of which sends (c - 1)/c of what a rank has of heads (model/head_exchange.h)
//   expert axis  of n ranks: in each of n - 1 rounds a rank sends rows to one other and gets as many; it waits for them. The
//                rank with most rows counts: all that is done with rows of others takes Cluster::expert_imbalance times as long
//   pipeline     m microbatches of the slowest stage, and the schedule's idle time, by formula or simulated
//   data axis    with context ranks, which hold the same weights: what the last microbatch's backward and the first one's
//   forward cannot hide; one operation per block optimizer    bytes of the owned states at the memory bandwidth offload the
//   slowest of gradients down, update on the host and weights up; the first and the last piece alone
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "autotune/block_work.h"
#include "autotune/cluster.h"
#include "autotune/layout.h"
#include "pipeline/partition.h"
#include "pipeline/timeline.h"

namespace trivet {
struct Config;
}

namespace trivet::autotune {

inline double as_double(int64_t number) { return static_cast<double>(number); }

struct StepSeconds {
  double compute = 0;    // the model's products and kernels
  double recompute = 0;  // forwards that are computed again
  double tensor = 0;     // on the tensor axis, as far as it is not hidden
  double context = 0;    // on the context axis
  double expert = 0;     // on the expert axis
  double bubble = 0;     // idle time in the pipeline, including transfers of the first microbatch
  double data = 0;       // on the data axis, as far as it is not hidden
  double optimizer = 0;  // on the device
  double offload = 0;    // for states in host memory: copies and the update there
  double hidden = 0;     // communication while the device computes; not a part of the total
  double waiting() const { return tensor + context + expert + data; }  // for communication
  double total() const { return compute + recompute + tensor + context + expert + bubble + data + optimizer + offload; }
};

struct StepBytes {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0;
  double host = 0;  // in host memory: offloaded states and their staging
  double total() const { return parameters + gradients + optimizer + activations + buffers; }
};
// Returns how far, in bytes, a device (less its reserve) or its share of the host is exceeded at most; 0 or less: fits.
double bytes_over(const StepBytes& bytes, const Cluster& cluster);
inline bool fits(const StepBytes& bytes, const Cluster& cluster) { return bytes_over(bytes, cluster) <= 0; }

struct StepPrediction {
  StepSeconds seconds;
  StepBytes bytes;  // memory of the stage that needs most
  double targets_per_second = 0;
  double model_flops_utilization = 0;  // model::flops_per_sample x samples/s / (devices x matrix rate)
};

// The types of a model's weights and states, and their bytes per parameter.
struct StateTypes {
  DType dtype = DType::BFloat16;                       // type of weights and activations
  double gradient_bytes = 2, sent_gradient_bytes = 2;  // as summed; as sent on the data axis
  double optimizer_bytes = 12;                         // master weights and two moments

  double most_reuse_distance = 1e9;  // zero_optimization.stage3_max_reuse_distance, for stage3_release "distance"
  double max_live = 1e9;             // ...stage3_max_live_parameters
  double sub_group = 1e9;            // ...sub_group_size: elements that are updated at once

  double weight_bytes() const { return static_cast<double>(size_of(dtype)); }
};
// Returns the engine's types for this config: precision, data_types.grad_accum_dtype, optimizer, reproducible.
StateTypes state_types(const Config& config);

// A model for one thread at a time, because it caches what blocks do.
class StepModel {
 public:
  // Model and cluster must outlive the StepModel.
  StepModel(const model::Model& model, const Cluster& cluster, const StateTypes& types = {});

  // The layout must divide the model: blocks into stages, heads among tensor ranks ...
  StepPrediction predict(const Layout& layout) const;
  // Predicts the memory alone, which is quicker.
  StepBytes bytes(const Layout& layout) const;
  std::vector<StepBytes> bytes_of_ranks(const Layout& layout) const;  // [pipeline rank]
  // The computation of the first `microbatches` of a step, with the times of each stage, in milliseconds.
  pipeline::Timeline timeline(const Layout& layout, int64_t microbatches) const;
  bool has_experts() const { return model_.description && model_.description->experts.enabled(); }
  int64_t largest_block(const Layout& layout) const;  // elements on a tensor rank

  double kernel_seconds(const kernels::KernelCall& call) const;
  // Seconds of an operation among `ranks` devices that are `stride` apart in the order of devices (tensor axis: 1, context,
  // expert and data axis: the tensor size; ranks that have the same experts: tensor x expert size).
  double operation_seconds(comm::Operation operation, double bytes, int64_t ranks, int64_t stride) const;

 private:
  struct BlockSeconds {
    double forward = 0, backward = 0;                           // kernels
    double weights = 0;                                         // the part of backward that makes weight gradients
    double forward_axis = 0, backward_axis = 0;                 // waiting for the tensor, context and expert axis
    double forward_again = 0, forward_again_axis = 0;           // recomputation
    double tensor_axis = 0, context_axis = 0, expert_axis = 0;  // all these waits, by axis
    double hidden_axis = 0;                                     // operations that nothing waits for
    double total() const { return forward + backward + forward_axis + backward_axis + forward_again + forward_again_axis; }
    BlockSeconds& operator+=(const BlockSeconds& other);
  };
  // A stage of the pipeline, or all stages of a pipeline rank together.
  struct Stage {
    BlockSeconds seconds;
    double blocks = 0;
    double parameters = 0, tied_parameters = 0, most_parameters = 0;  // all blocks'; owned elsewhere; largest block's
    double trained = 0, tied_trained = 0, most_trained = 0;           // the parameters above that are not frozen
    double expert_parameters = 0, expert_trained = 0;                 // the parts above that are of shared experts
    double expert_blocks = 0;                                         // that have such parameters
    double saved_bytes = 0, pending_bytes = 0;                        // per microbatch in flight (block_work.h)
    double transient_bytes = 0;                                       // in addition, while a block computes
  };
  // Caches of what does not depend on the number of data ranks and microbatches.
  using Key = std::array<int64_t, 11>;
  const Works& works_of(const Layout& layout) const;
  const std::vector<pipeline::BlockFacts>& facts_of(const Layout& layout) const;
  const std::vector<Stage>& stages_of(const Layout& layout) const;
  Stage stage_of_rank(const Layout& layout, int64_t pipeline_rank) const;
  BlockSeconds seconds_of(const BlockWork& work, const Layout& layout, bool recomputed) const;
  bool stays_whole(const Layout& layout, double parameters) const;
  StepBytes bytes_of(const Layout& layout, int64_t pipeline_rank, const Stage& stage) const;
  double offload_seconds(const Layout& layout, const Stage& stage) const;
  double bubble_seconds(const Layout& layout, double forward, double input, double weight) const;
  // Parameters of a stage that are divided over the same ranks: dense ones, and those of experts that ranks share.
  struct Divided {
    double parameters = 0, trained = 0, blocks = 0;
    int64_t ranks = 1, stride = 1;
    double pieces(int64_t bucket) const;  // in which a block is sent
  };
  std::vector<Divided> divided(const Layout& layout, const Stage& stage) const;
  double updated(const Layout& layout, const Stage& stage) const;  // elements, by a rank
  struct Communication {
    double exposed = 0, hidden = 0;  // seconds
  };
  Communication data_axis(const Layout& layout, const Stage& stage, double forward, double backward) const;
  Nodes nodes_of(int64_t ranks, int64_t stride) const;

  const model::Model& model_;
  const Cluster& cluster_;
  StateTypes types_;
  const BlockWorks blocks_;
  mutable std::map<Key, Works> works_;
  mutable std::vector<pipeline::BlockFacts> facts_;
  mutable std::map<Key, std::vector<Stage>> stages_;
  mutable std::map<Key, double> bubbles_;  // in units of a microbatch
};

}  // namespace trivet::autotune
