// autotuning.*: read by `trivet tune` (docs/tuning.md), without effect on a training run.
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
  // 0 is null.
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
  optional("mp_size", &A::mp_size, "ranks that share the model, tensor x pipeline; null: every number that divides the ranks");
  key("min_train_batch_size", &A::min_train_batch_size, "smallest batch tried where train_batch_size is not given").at_least(1);
  optional("max_train_batch_size", &A::max_train_batch_size, "largest batch tried where train_batch_size is not given");
  key("min_train_micro_batch_size_per_gpu", &A::min_micro_batch_size, "smallest microbatch tried").at_least(1);
  key("max_train_micro_batch_size_per_gpu", &A::max_micro_batch_size, "largest microbatch tried").at_least(1);
  key("num_tuning_micro_batch_sizes", &A::micro_batch_sizes,
      "microbatches tried with each layout: evenly spread over those that fit, the smallest and the largest among them")
      .at_least(1);
}

void add_how(Section<A>& tuning) {
  const auto key = [&](const std::string& name, auto member, const std::string& meaning) {
    return tuning.key(name, member, meaning).active_when(kWhen, never_in_training);
  };
  key("enabled", &A::enabled, "the section is meant; false contradicts `trivet tune` where it is given");
  key("metric", &A::metric,
      "what is made best: samples a second, the seconds of a step, or the model's FLOPs a second of a rank");
  key("tuner_type", &A::tuner_type,
      "how the space is searched: in its order, in a random order, or where the step model, corrected by every trial, expects "
      "most");
  key("tuner_num_trials", &A::num_trials, "trials that are run at most").at_least(1);
  key("tuner_early_stopping", &A::early_stopping, "trials in a row that are not better than the best before it stops; 0: never")
      .at_least(0);
  key("start_profile_step", &A::start_profile_step, "first measured step of a trial; those before it warm up").at_least(1);
  key("end_profile_step", &A::end_profile_step, "last measured step, with which the trial ends").at_least(1);
  key("results_dir", &A::results_dir, "folder of the report, of the best config and of a folder a trial");
  key("exps_dir", &A::exps_dir, "folder of what each trial was asked to run");
  key("overwrite", &A::overwrite, "remove the results of an earlier tuning; false: go on from them");
}

void add_without_effect(SectionBase& tuning) {
  tuning.inert("metric_path", "null", "file with the metric",
               "refused by `trivet tune`, which measures trials itself: results_dir/NAME/metrics.json");
  tuning
      .inert("arg_mappings", "null", "flags of the user's script that repeat keys of the config",
             "there is no script: trials are configs")
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
  add_without_effect(tuning);
}

}  // namespace trivet::config
