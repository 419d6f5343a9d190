// autotuning.*: read by `trivet tune` (docs/tuning.md); these keys have no effect on a training run.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

using A = AutotuningConfig;

const char* const kWhen = "`trivet tune` runs";
bool never_in_training(const Config&) { return false; }

void add_what_is_searched(KeyTable& table, Section<A>& tuning) {
  const auto key = [&](const std::string& name, auto member, const std::string& meaning) {
    return tuning.key(name, member, meaning).active_when(kWhen, never_in_training);
  };
  // Stores null as 0.
  const auto optional = [&](const std::string& name, int64_t A::*member, const std::string& meaning) {
    SectionBase(table, "autotuning")
        .custom(
            name, KeyType::Integer, meaning,
            [member](Config& config, const JsonNode& node) { config.autotuning.*member = node.integer; },
            [member](const Config& config) {
              return config.autotuning.*member == 0 ? std::string("null") : std::to_string(config.autotuning.*member);
            })
        .at_least(1)
        .nullable()
        .active_when(kWhen, never_in_training);
  };
  key("fast", &A::fast,
      "search the ZeRO stage, the mesh and the microbatch; false: also the schedule, recomputation, overlap and sequence "
      "parallelism");
  optional("mp_size", &A::mp_size, "ranks that share the model (tensor x pipeline); null: every divisor of the world size");
  key("min_train_batch_size", &A::min_train_batch_size, "smallest batch tried if train_batch_size is not given").at_least(1);
  optional("max_train_batch_size", &A::max_train_batch_size, "largest batch tried if train_batch_size is not given");
  key("min_train_micro_batch_size_per_gpu", &A::min_micro_batch_size, "smallest microbatch size tried").at_least(1);
  key("max_train_micro_batch_size_per_gpu", &A::max_micro_batch_size, "largest microbatch size tried").at_least(1);
  key("num_tuning_micro_batch_sizes", &A::micro_batch_sizes,
      "number of microbatch sizes tried with each layout: they are spread evenly over those that fit, including the smallest "
      "and the largest")
      .at_least(1);
}

void add_how(Section<A>& tuning) {
  const auto key = [&](const std::string& name, auto member, const std::string& meaning) {
    return tuning.key(name, member, meaning).active_when(kWhen, never_in_training);
  };
  key("enabled", &A::enabled, "`trivet tune` refuses a config in which this is set to false");
  key("metric", &A::metric, "what is optimized: samples per second, seconds per step, or model FLOPs per second and rank");
  key("tuner_type", &A::tuner_type,
      "how the space is searched: in its own order, in random order, or where the step model, which every trial corrects, "
      "predicts the best result")
      .deepspeed("the default is \"gridsearch\"");
  key("tuner_num_trials", &A::num_trials, "maximum number of trials").at_least(1);
  key("tuner_early_stopping", &A::early_stopping, "stop after this many trials in a row without improvement; 0: never")
      .at_least(0);
  key("start_profile_step", &A::start_profile_step, "first measured step of a trial; the steps before it are warm-up")
      .at_least(1);
  key("end_profile_step", &A::end_profile_step, "last measured step; the trial ends with it").at_least(1);
  key("results_dir", &A::results_dir, "folder for the report, the best config and one subfolder per trial");
  key("exps_dir", &A::exps_dir, "folder for the description of each trial, written before it runs");
  key("overwrite", &A::overwrite, "remove the results of an earlier tuning run; false: continue from them");
}

void add_autotuning_without_effect(SectionBase& tuning) {
  tuning.inert("metric_path", "null", "file with the metric",
               "`trivet tune` refuses it, because it measures the trials itself (results_dir/NAME/metrics.json)");
  tuning
      .inert("arg_mappings", "null", "flags of the user's script that repeat keys of the config",
             "there is no script; a trial is a config")
      .type(KeyType::Object);
  tuning.inert("model_info_path", "null", "file with the model's sizes", "the plan knows the model");
  tuning
      .inert("model_info", "null", "the model's sizes {profile, num_params, hidden_size, num_layers}",
             "the plan knows the model")
      .type(KeyType::Object);
}

}  // namespace

void add_autotuning_keys(KeyTable& table) {
  Section<A> tuning(table, "autotuning", [](Config& c) -> A& { return c.autotuning; });
  add_how(tuning);
  add_what_is_searched(table, tuning);
  add_autotuning_without_effect(tuning);
}

}  // namespace trivet::config
