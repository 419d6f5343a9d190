// device, cuda_graph, reproducible, training.*, dpo.*, audit.*, communication.*
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"
#include "model/family.h"

namespace trivet::config {
namespace {

void add_training_keys(KeyTable& table) {
  Section<TrainingConfig> training(table, "training", [](Config& c) -> TrainingConfig& { return c.training; });
  training.own();
  training.key("steps", &TrainingConfig::steps, "optimizer steps to train; 0: `epochs` decides the length").at_least(0);
  training.key("epochs", &TrainingConfig::epochs, "passes over the training data; 0: `steps` decides the length").at_least(0);
  training
      .custom(
          "objective", KeyType::Enum,
          "what the model is trained for; \"next_token\": the cross-entropy of the next tokens, of completions alone "
          "if the data mark "
          "prompts (`data.loss_on`); \"sft\": the same, and data that mark no prompts are refused; \"dpo\": direct "
          "preference "
          "optimization on pairs of answers (docs/data.md)",
          [](Config& c, const JsonNode& node) { from_json(c.model.objective, node); },
          [](const Config& c) { return as_json(c.model.objective); })
      .names(names_of<model::Objective>())
      .active_when("the model reads text", [](const Config& c) { return !model::family_of(c.model.type).reads_images; });
  training.key("seed", &TrainingConfig::seed, "decides initial weights, data order and dropout").at_least(0);
  training
      .key("evaluate_every", &TrainingConfig::evaluate_every,
           "steps between evaluations; with `evaluate_every_epochs` also 0, the run never evaluates")
      .at_least(0);
  training.key("evaluate_every_epochs", &TrainingConfig::evaluate_every_epochs, "epochs between evaluations; 0: none")
      .at_least(0);
  training.key("evaluate_samples", &TrainingConfig::evaluate_samples, "samples per evaluation; 0: the whole validation split")
      .at_least(0)
      .active_when("the run evaluates", [](const Config& c) { return c.training.evaluates() || c.data.only_evaluated; });
  training
      .key("early_stopping_patience", &TrainingConfig::early_stopping_patience,
           "the run ends, as if complete, when so many evaluations in a row were no improvement; 0: it never ends early")
      .at_least(0);
  training
      .key("early_stopping_threshold", &TrainingConfig::early_stopping_threshold,
           "an evaluation is an improvement if its loss is lower than the lowest before it by more than this")
      .at_least(0)
      .active_when("training.early_stopping_patience is above 0",
                   [](const Config& c) { return c.training.early_stopping_patience > 0; });
  training
      .key("stop_after_skipped", &TrainingConfig::stop_after_skipped,
           "consecutive steps skipped for non-finite gradients before the run gives up; with a dynamic fp16 loss scale an "
           "overflow at fp16.min_loss_scale ends it instead")
      .at_least(1)
      .active_when("the loss scale is not dynamic", [](const Config& c) { return !c.fp16.enabled || c.fp16.loss_scale != 0; });
}

void add_dpo_keys(KeyTable& table) {
  const auto for_pairs = [](KeyRefiner key) {
    key.active_when("training.objective is \"dpo\"",
                    [](const Config& c) { return c.model.objective == model::Objective::Dpo; });
  };
  using kernels::PreferenceRule;
  Section<PreferenceRule> dpo(table, "dpo", [](Config& c) -> PreferenceRule& { return c.model.preference; });
  dpo.own();
  for_pairs(
      dpo.key("loss_type", &PreferenceRule::loss_type,
              "how the margin between the rewards of a preferred and a rejected answer becomes a loss, by the names of TRL "
              "(docs/data.md)"));
  for_pairs(dpo.key("beta", &PreferenceRule::beta,
                    "a reward is beta times how much more probable an answer has become than in the reference model, in "
                    "logarithms; for \"ipo\" 1 / (2 beta) is the margin that is aimed at")
                .between(1e-6, 1e6));
  dpo.key("label_smoothing", &PreferenceRule::label_smoothing,
          "the probability that the answers of a pair are swapped by mistake")
      .between(0, 0.5)
      .below(0.5)
      .active_when("dpo.loss_type is \"robust\"", [](const Config& c) {
        return c.model.objective == model::Objective::Dpo &&
               c.model.preference.loss_type == kernels::PreferenceLossType::Robust;
      });
}

void add_audit_keys(KeyTable& table) {
  Section<AuditConfig> audit(table, "audit", [](Config& c) -> AuditConfig& { return c.audit; });
  audit.own();
  audit
      .key("weights_every", &AuditConfig::weights_every,
           "steps between comparisons of replicated weights across ranks, which find silent data corruption. Weights are also "
           "compared before a checkpoint is saved on disk and before a run ends because of non-finite numbers. 0: never")
      .at_least(0);
  audit
      .key("every_steps", &AuditConfig::every_steps,
           "steps between audits of gradients: each data rank computes a random microbatch of another one again, and all bits "
           "must be equal; sums over microbatches and ranks are checked, too. Needs reproducible \"layout\". 0: never")
      .at_least(0);
}

void add_communication_keys(KeyTable& table) {
  using C = CommunicationConfig;
  Section<C> communication(table, "communication", [](Config& c) -> C& { return c.communication; });
  communication.own();
  communication.key("transport", &C::transport,
                    "carries messages between ranks on different hosts, while ranks on one host share memory; \"auto\" is "
                    "\"ucx\", and \"gloo\" is used only if it is chosen");
  communication.key("interface", &C::interface,
                    "this host's network interface for these messages: a name such as \"ib0\", or a network such as "
                    "\"10.1.0.0/16\"; empty: the one that reaches rank 0's host");
  communication
      .key(
          "sums", &C::sums,
          "how floats are added over hosts; \"chain\": in rank order, so that the bits do not depend on which rank is on which "
          "host; \"exchange\": each host adds its own ranks, and then the hosts' sums are added, which sends fewer bytes "
          "(docs/communication.md)")
      .active_when("reproducible is \"run\"", [](const Config& c) { return c.reproducible == Reproducible::Run; });
  communication
      .key("join_seconds", &C::join_seconds,
           "how long ranks wait for each other at the start; then those that have come end and name the missing ones")
      .between(0.1, 86400);
  communication
      .key(
          "silence_seconds", &C::silence_seconds,
          "a rank is lost if nothing is heard from it for so long: its host is gone, its link is down, or its process does not "
          "run. Ranks send heartbeats every 0.1 s")
      .between(0.5, 86400);
  communication
      .key("progress_seconds", &C::progress_seconds,
           "how long ranks wait in an operation for one that is alive but does not come, because it computes or is stuck; then "
           "the job ends and names it")
      .between(0.5, 604800);
}

}  // namespace

void add_run_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  top.own();
  top.key("device", &Config::device, "where the ranks compute; \"auto\": on GPUs if there are any");
  top.key("cuda_graph", &Config::cuda_graph,
          "launch a training step's kernels as one CUDA graph, captured at the second step; \"auto\": where this is possible, "
          "that is, with one rank, without offload, and without blocks or tokens that are left out")
      .active_when("the device is a GPU", [](const Config& c) { return c.compute_device() == Device::Cuda; });
  top.key("reproducible", &Config::reproducible,
          "\"run\": the same layout always gives the same bits; \"layout\": all layouts give the same bits, with 1, 2, 4 or 8 "
          "tensor ranks and no sequence parallelism");
  add_training_keys(table);
  add_dpo_keys(table);
  add_data_keys(table);
  add_audit_keys(table);
  add_communication_keys(table);
}

}  // namespace trivet::config
