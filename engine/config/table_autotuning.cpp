// autotuning.*: read by a tuner, without effect on a training run.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {

void add_autotuning_keys(KeyTable& table) {
  SectionBase tuning(table, "autotuning");
  const auto key = [&](const std::string& name, const std::string& default_json, const std::string& meaning) {
    return tuning.inert(name, default_json, meaning, "the section is for tuning, not for training");
  };
  key("enabled", "false", "search for a fast config");
  key("fast", "true", "search the batch size only");
  key("overwrite", "true", "overwrite earlier results");
  key("results_dir", "\"autotuning_results\"", "where results are written");
  key("exps_dir", "\"autotuning_exps\"", "where experiments are written");
  key("start_profile_step", "3", "first measured step").at_least(0);
  key("end_profile_step", "5", "last measured step").at_least(0);
  key("metric", "\"throughput\"", "what is made best").names({"throughput", "latency", "flops"});
  key("metric_path", "null", "file with the metric");
  key("tuner_type", "\"gridsearch\"", "how the space is searched").names({"gridsearch", "random", "model_based"});
  key("tuner_early_stopping", "5", "experiments without progress before it stops").at_least(0);
  key("tuner_num_trials", "50", "most experiments").at_least(0);
  key("arg_mappings", "null", "flags of the user's script").type(KeyType::Object);
  key("model_info_path", "null", "file with the model's sizes");
  key("mp_size", "1", "ranks that share the model").at_least(1);
  key("min_train_batch_size", "1", "smallest batch tried").at_least(1);
  key("max_train_batch_size", "null", "largest batch tried");
  key("min_train_micro_batch_size_per_gpu", "1", "smallest microbatch tried").at_least(1);
  key("max_train_micro_batch_size_per_gpu", "1024", "largest microbatch tried").at_least(1);
  key("num_tuning_micro_batch_sizes", "3", "microbatches tried").at_least(1);
  key("model_info", "null", "the model's sizes {profile, num_params, hidden_size, num_layers}").type(KeyType::Object);
}

}  // namespace trivet::config
