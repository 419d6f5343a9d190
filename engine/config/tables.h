// The parts of the key table, one function per file table_*.cpp.
#pragma once

namespace trivet::config {

class KeyTable;

void add_run_keys(KeyTable& table);  // device, cuda_graph, reproducible, training, dpo, data, audit, communication
void add_data_keys(KeyTable& table);
void add_model_keys(KeyTable& table);
void add_batch_keys(KeyTable& table);
void add_optimizer_keys(KeyTable& table);
void add_scheduler_keys(KeyTable& table);
void add_precision_keys(KeyTable& table);
void add_zero_keys(KeyTable& table);
void add_offload_keys(KeyTable& table);
void add_parallel_keys(KeyTable& table);
void add_pipeline_keys(KeyTable& table);  // and activation_checkpointing
void add_checkpoint_keys(KeyTable& table);
void add_monitoring_keys(KeyTable& table);
void add_autotuning_keys(KeyTable& table);
void add_deepspeed_keys(KeyTable& table);  // known but mostly not implemented
void add_data_efficiency_keys(KeyTable& table);

}  // namespace trivet::config
