#include "autotune/communication_volume.h"

#include <stdexcept>

namespace trivet::autotune {
namespace {

double share_sent(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

double gathers_of_stage3(const DataAxis& axis) {
  const double microbatches = static_cast<double>(axis.microbatches);
  switch (axis.release) {
    case pipeline::UnshardRelease::Use: return 2 * microbatches;
    case pipeline::UnshardRelease::Microbatch: return microbatches;
    case pipeline::UnshardRelease::Step: return 1;
    case pipeline::UnshardRelease::Distance: break;
  }
  throw std::logic_error("data_volume: a distance has no closed formula; a plan counts it");
}

}  // namespace

DataVolume data_volume(const DataAxis& axis, double parameters) {
  const double sent = parameters * share_sent(axis.ranks), microbatches = static_cast<double>(axis.microbatches);
  switch (axis.zero_stage) {
    case 0: return {2 * sent, 0};
    case 1: return {sent, sent};
    case 2: return {microbatches * sent, sent};
    case 3: return {microbatches * sent, gathers_of_stage3(axis) * sent};
    default: throw std::logic_error("data_volume: there is no such ZeRO stage");
  }
}

HybridVolume hybrid_shard_volume(double parameters, int64_t shard_ranks, int64_t replicas, int64_t microbatches) {
  const DataAxis inside{.zero_stage = 3, .ranks = shard_ranks, .microbatches = microbatches};
  const DataAxis across{.zero_stage = 0, .ranks = replicas};
  return {data_volume(inside, parameters).total(), data_volume(across, parameters / static_cast<double>(shard_ranks)).total()};
}

QuantizedVolume zero_plus_plus_volume(double parameters) { return {8.0 / 16 * parameters, 0, 4.0 / 16 * parameters}; }

double tensor_layer_volume(double activations, int64_t ranks, int64_t gathered_again) {
  return (8 + static_cast<double>(gathered_again)) * share_sent(ranks) * activations;
}

double ulysses_layer_volume(double activations, int64_t ranks, double key_value_share) {
  return (2 + 2 * key_value_share) * share_sent(ranks) * activations / static_cast<double>(ranks);
}

double ring_attention_volume(double activations, int64_t ranks, double key_value_share) {
  return 2 * key_value_share * share_sent(ranks) * activations;
}

double expert_layer_volume(double activations, int64_t ranks, int64_t chosen) {
  return 2 * share_sent(ranks) * static_cast<double>(chosen) * activations;
}

}  // namespace trivet::autotune
