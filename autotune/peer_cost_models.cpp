#include "autotune/peer_cost_models.h"

#include <algorithm>
#include <stdexcept>

namespace trivet::autotune {
namespace {

double share_of_rank(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

}  // namespace

double alpa_all_gather(int64_t ranks, double bytes, const Link& link) {
  return link.alpha + share_of_rank(ranks) * bytes * link.beta + 0.1;
}
double alpa_all_reduce(int64_t ranks, double bytes, const Link& link) {
  return link.alpha + 2 * share_of_rank(ranks) * bytes * link.beta + 0.01;
}
double alpa_reduce_scatter(int64_t ranks, double bytes, const Link& link) {
  return link.alpha + share_of_rank(ranks) * bytes * link.beta + 0.001;
}
double alpa_all_to_all(int64_t ranks, double bytes, const Link& link) {
  const double n = static_cast<double>(ranks);
  return link.alpha + share_of_rank(ranks) / n * bytes * link.beta * (n / 2) + 0.001;
}

double galvatron_data_message(int64_t ranks, double bytes, bool mixed_precision) {
  return 2 * share_of_rank(ranks) * bytes / (mixed_precision ? 2 : 1);
}

double galvatron_backward_seconds(double forward, bool recomputed, double ratio) {
  return ratio * forward + (recomputed ? forward : 0);
}

double galvatron_state_share(int zero_stage, int64_t ranks, bool float32_gradients) {
  if (zero_stage != 2 && zero_stage != 3) throw std::logic_error("galvatron_state_share: the stage must be 2 or 3");
  const double sharded = 1 / static_cast<double>(ranks) + 0.003;
  return (zero_stage == 3 ? sharded : 7.0 / 8 * sharded + 1.0 / 8) * (float32_gradients ? 5.0 / 4 : 1);
}

double galvatron_overlapped_seconds(const Beside& work) {
  const double compute = work.compute * work.compute_slowdown, communication = work.communication * work.communication_slowdown;
  const double together = std::min(compute, communication);
  return together + (compute - together) / work.compute_slowdown + (communication - together) / work.communication_slowdown;
}

double zero_communication_seconds(double parameters, double element_bytes, double passes, double bytes_per_second) {
  return passes * element_bytes * parameters / bytes_per_second;
}
double zero_compute_seconds(double parameters, double tokens, double passes, double flops_per_second_of_all) {
  return passes * 2 * parameters * tokens / flops_per_second_of_all;
}

}  // namespace trivet::autotune
