// data_efficiency.*, curriculum_learning.*, progressive_layer_drop.*, quantize_training.*, eigenvalue.*: none is implemented.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void add_sampling(KeyTable& table) {
  SectionBase sampling(table, "data_efficiency.data_sampling");
  sampling.unsupported("enabled", "false", "choose samples by difficulty or length");
  sampling.unsupported("num_epochs", "1000", "passes over the data");
  sampling.unsupported("num_workers", "0", "loader processes");
  sampling.unsupported("pin_memory", "false", "page-lock batches");
  SectionBase curriculum(table, "data_efficiency.data_sampling.curriculum_learning");
  curriculum.unsupported("enabled", "false", "easy samples first");
  curriculum.unsupported("data_cluster_path", "null", "index of the samples");
  curriculum.unsupported("curriculum_metrics", "{}", "what makes a sample difficult");
  SectionBase batching(table, "data_efficiency.data_sampling.dynamic_batching");
  batching.unsupported("enabled", "false", "form batches by tokens instead of samples");
  batching.unsupported("max_tokens", "null", "tokens per batch");
  batching.unsupported("lr_scaling_method", "\"linear\"", "how the learning rate scales with the batch size");
  batching.unsupported("min_batch_size", "1", "smallest batch");
  batching.unsupported("max_batch_size", "null", "largest batch");
  batching.unsupported("sequence_picking_order", "\"dataloader\"", "order of the samples");
  batching.unsupported("metrics_path", "null", "index of the sequence lengths");
  batching.unsupported("verbose", "false", "print the batches");
}

void add_random_ltd(KeyTable& table) {
  SectionBase routing(table, "data_efficiency.data_routing");
  routing.unsupported("enabled", "false", "skip tokens in middle layers");
  SectionBase ltd(table, "data_efficiency.data_routing.random_ltd");
  ltd.unsupported("enabled", "false", "random layer-token dropping");
  for (const char* name : {"total_layer_num", "random_ltd_layer_num", "random_ltd_layer_id", "model_mask_name", "model_type",
                           "hidden_state_order", "random_ltd_schedule", "layer_token_lr_schedule"})
    ltd.unsupported(name, "null", "setting of random layer-token dropping");
}

}  // namespace

void add_data_efficiency_keys(KeyTable& table) {
  SectionBase efficiency(table, "data_efficiency");
  efficiency.refused("data efficiency (curricula, dynamic batches, random layer-token dropping)");
  efficiency.unsupported("enabled", "false", "DeepSpeed's data efficiency library");
  efficiency.unsupported("seed", "1234", "seed of that library");
  add_sampling(table);
  add_random_ltd(table);

  SectionBase curriculum(table, "curriculum_learning");
  curriculum.refused("curriculum learning");
  curriculum.unsupported("enabled", "false", "short sequences first");
  for (const char* name : {"curriculum_type", "min_difficulty", "max_difficulty", "schedule_type", "schedule_config"})
    curriculum.unsupported(name, "null", "setting of the curriculum");
  SectionBase layer_drop(table, "progressive_layer_drop");
  layer_drop.refused("progressive layer drop");
  layer_drop.unsupported("enabled", "false", "skip layers with growing probability");
  layer_drop.unsupported("theta", "1.0", "share of layers kept at the end");
  layer_drop.unsupported("gamma", "0.001", "how fast that share is reached");
  SectionBase eigenvalue(table, "eigenvalue");
  eigenvalue.refused("eigenvalues of layers");
  eigenvalue.unsupported("enabled", "false", "compute eigenvalues of the layers");
  eigenvalue.unsupported("verbose", "false", "print the eigenvalues");
  eigenvalue.unsupported("max_iter", "100", "iterations");
  eigenvalue.unsupported("tol", "0.01", "tolerance");
  eigenvalue.unsupported("stability", "0.000001", "added to the norm");
  eigenvalue.unsupported("gas_boundary_resolution", "1", "steps between computations");
  eigenvalue.unsupported("layer_name", "null", "layers");
  eigenvalue.unsupported("layer_num", "null", "number of layers");
  SectionBase(table, "").unsupported("quantize_training", "{}", "quantization-aware training");
  SectionBase(table, "quantize_training").refused("quantization-aware training", "");
}

}  // namespace trivet::config
