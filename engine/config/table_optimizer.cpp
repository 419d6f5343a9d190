// optimizer.*
#include <fmt/format.h>

#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

// DeepSpeed's other optimizers, then PyTorch's, which DeepSpeed accepts by name.
std::vector<std::string> optimizers_of_deepspeed() {
  return {"MuAdam",  "MuAdamW",    "MuSGD",          "FusedAdam", "CPUAdam",   "DeepSpeedCPUAdam", "FusedLamb", "FusedLion",
          "CPULion", "CPUAdagrad", "ZenFlowCPUAdam", "Adadelta",  "Adafactor", "Adamax",           "ASGD",      "LBFGS",
          "NAdam",   "RAdam",      "RMSprop",        "Rprop",     "SparseAdam"};
}

// Optimizers that DeepSpeed and Trivet no longer have.
std::vector<RemovedName> removed_optimizers() {
  const auto removed = [](const char* name, const char* like) {
    return RemovedName{name, fmt::format("DeepSpeed 0.19.8 no longer has it; use \"{}\", and, to send less, "
                                         "zero_optimization.zero_quantized_gradients with zero_optimization.stage 1 or more",
                                         like)};
  };
  return {removed("OneBitAdam", "AdamW"), removed("ZeroOneAdam", "AdamW"), removed("OneBitLamb", "Lamb")};
}

std::string default_of_trainer(const char* argument) {
  return std::string(", the default of Hugging Face's Trainer, which takes ") + argument;
}

void set_betas(Config& config, const JsonNode& node) {
  const auto valid = [](const JsonNode& beta) { return beta.kind == JsonKind::Number && beta.number >= 0 && beta.number < 1; };
  if (node.items.size() != 2 || !valid(node.items[0]) || !valid(node.items[1]))
    throw std::invalid_argument("use two numbers, each at least 0 and less than 1, such as [0.9, 0.999]");
  config.optimizer.beta1 = node.items[0].number;
  config.optimizer.beta2 = node.items[1].number;
}

std::string get_betas(const Config& config) {
  return fmt::format("[{}, {}]", number_json(config.optimizer.beta1), number_json(config.optimizer.beta2));
}

// Muon's two rates are also given as multiples of it.
bool replaces_rate(const Config& config) {
  const SchedulerConfig& s = config.scheduler;
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.muon_lr > 0 || optimizer.adam_lr > 0) return false;
  if (s.type == SchedulerType::LRRangeTest || s.type == SchedulerType::OneCycle) return true;
  const bool warms_up = s.type == SchedulerType::WarmupLR || s.type == SchedulerType::WarmupDecayLR;
  return warms_up && s.warmup_max_lr > 0 && s.warmup_max_lr != optimizer.lr;
}

void add_parameters(KeyTable& table) {
  using O = OptimizerConfig;
  Section<O> params(table, "optimizer.params", [](Config& c) -> O& { return c.optimizer; });
  const std::string type = "optimizer.type";
  params.key("lr", &O::lr, "learning rate")
      .at_least(0)
      .default_note("Adagrad: 0.01")
      .takes_auto([](Config& c) {
        c.optimizer.lr = 5e-5;
        return "0.00005" + default_of_trainer("--learning_rate");
      })
      .active_when("the scheduler has no rates of its own in its place (scheduler.params.warmup_max_lr, OneCycle, LRRangeTest)",
                   [](const Config& c) { return !replaces_rate(c); });
  params.custom("betas", KeyType::List, "decay rates of the first and second moments", set_betas, get_betas)
      .only_for(type, {"Adam", "AdamW", "Lion", "Lamb", "Muon"});
  params.key("eps", &O::epsilon, "added to the denominator")
      .more_than(0)
      .default_note("Adagrad: 1e-10")
      .only_for(type, {"Adam", "AdamW", "Lamb", "Adagrad", "Muon"});
  params.key("weight_decay", &O::weight_decay, "decay of the weights")
      .at_least(0)
      .deepspeed(
          "decays biases and norms, too, unless the program gives it groups of parameters; optimizer.decay_all does so "
          "here");
  params.key("bias_correction", &O::bias_correction, "correct the bias of the moments in the first steps")
      .only_for(type, {"Adam", "AdamW", "Lamb"});
  params.key("adam_w_mode", &O::adam_w_mode, "decoupled weight decay; AdamW always has it").only_for(type, {"Adam", "AdamW"});
  params.key("momentum", &O::momentum, "decay of the momentum")
      .between(0, 1)
      .below(1)
      .default_note("Muon: 0.95")
      .only_for(type, {"SGD", "Muon"});
  params.key("dampening", &O::dampening, "share of the gradient kept out of the momentum")
      .between(0, 1)
      .only_for(type, {"SGD"});
  params.key("nesterov", &O::nesterov, "Nesterov momentum").default_note("Muon: true").only_for(type, {"SGD", "Muon"});
  params.key("max_coeff", &O::max_coefficient, "upper bound of the trust ratio").more_than(0).only_for(type, {"Lamb"});
  params.key("min_coeff", &O::min_coefficient, "lower bound of the trust ratio").at_least(0).only_for(type, {"Lamb"});
  params.key("muon_lr", &O::muon_lr, "learning rate of matrices; 0: lr").at_least(0).only_for(type, {"Muon"});
  params.key("adam_lr", &O::adam_lr, "learning rate of all other parameters; 0: lr").at_least(0).only_for(type, {"Muon"});
}

void add_known_parameters(KeyTable& table) {
  SectionBase params(table, "optimizer.params");
  params.inert("torch_adam", "false", "use PyTorch's Adam", "Trivet has only one Adam")
      .deepspeed("true takes PyTorch's AdamW, whose weight_decay is 0.01 where none is given");
  params.unsupported("max_grad_norm", "null", "clipping by the optimizer; DeepSpeed refuses it too")
      .instead("gradient_clipping");
  params.unsupported("fp32_optimizer_states", "true", "precision of the optimizer state");
  params.unsupported("amsgrad", "false", "the AMSGrad variant of Adam");
  params.unsupported("maximize", "false", "PyTorch's optimizers: follow the gradient upwards");
  params.unsupported("lr_decay", "0", "PyTorch's Adagrad: decay of the learning rate").instead("a scheduler");
  params.unsupported("initial_accumulator_value", "0", "PyTorch's Adagrad: first sum of squares");
  params.unsupported("eps_inside_sqrt", "false", "LAMB: where eps is added");
  const char* const one_kernel = "there is one implementation of each optimizer";
  for (const char* name : {"foreach", "fused"})
    params.inert(name, "null", "PyTorch's optimizers: which kernels compute the update", one_kernel);
  for (const char* name : {"capturable", "differentiable"})
    params.inert(name, "false", "PyTorch's optimizers: how they work with PyTorch's graphs", one_kernel);
  params.inert("set_grad_none", "true", "free gradients after a step", "their memory is planned");
  params.unsupported("ns_method", "\"standard\"", "Newton-Schulz iteration of Muon");
}

}  // namespace

void add_optimizer_keys(KeyTable& table) {
  Section<OptimizerConfig> optimizer(table, "optimizer", [](Config& c) -> OptimizerConfig& { return c.optimizer; });
  optimizer.key("type", &OptimizerConfig::type, "the rule that turns gradients into updates; case does not matter")
      .selects()
      .ignores_case()
      .refuses(optimizers_of_deepspeed())
      .removed(removed_optimizers())
      .refuses_auto("it decides how weights are trained");
  add_parameters(table);
  add_known_parameters(table);
  optimizer.key("decay_all", &OptimizerConfig::decay_all, "apply weight decay to biases and norms too").own();
  optimizer.inert("legacy_fusion", "false", "the old fused wrapper for fp16", "there is one implementation of each optimizer");

  Section<Config> scaling(table, "optimizer.lr_scaling", [](Config& c) -> Config& { return c; });
  scaling.own();
  scaling.key("rule", &Config::lr_scaling, "how the learning rate scales with train_batch_size / base_batch_size");
  scaling.key("base_batch_size", &Config::lr_scaling_base_batch, "the batch size that lr was chosen for")
      .at_least(0)
      .active_when("optimizer.lr_scaling.rule is \"linear\" or \"sqrt\"",
                   [](const Config& c) { return c.lr_scaling != LrScaling::None; });
  scaling
      .key("warmup_epochs", &Config::lr_scaling_warmup_epochs,
           "epochs in which the learning rate rises evenly from the unscaled to the scaled one (Goyal et al. 2017: 5)")
      .at_least(0)
      .active_when("optimizer.lr_scaling.rule is \"linear\" or \"sqrt\"",
                   [](const Config& c) { return c.lr_scaling != LrScaling::None; });

  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  top.inert("zero_allow_untested_optimizer", "false", "allow an optimizer that DeepSpeed did not test with ZeRO",
            "every optimizer of Trivet works with every ZeRO stage");
  top.inert("zero_force_ds_cpu_optimizer", "true", "insist on DeepSpeed's CPU optimizer when offloading",
            "there is one implementation of each optimizer");
}

}  // namespace trivet::config
