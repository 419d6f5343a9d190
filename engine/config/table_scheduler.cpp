// scheduler.*
#include "engine/config/refuse.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

using S = SchedulerConfig;
using Names = std::vector<std::string>;
const char* const kSchedulerType = "scheduler.type";
constexpr double kRateOfTrainer = 5e-5;  // the value that Hugging Face's Trainer fills in

// PyTorch's schedulers, which DeepSpeed accepts by name.
Names schedulers_of_deepspeed() {
  return {"LambdaLR",         "MultiplicativeLR",  "StepLR",       "MultiStepLR",  "ConstantLR",
          "LinearLR",         "ExponentialLR",     "SequentialLR", "PolynomialLR", "CosineAnnealingLR",
          "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",     "OneCycleLR",   "CosineAnnealingWarmRestarts"};
}

void add_warmup(Section<S>& params) {
  const Names warmup{"WarmupLR", "WarmupDecayLR"};
  params
      .key(
          "total_num_steps", &S::total_num_steps,
          "step at which the schedule ends; 0: the last step of the run (training.steps, or training.epochs), so that resuming "
          "with more of them changes the learning rate")
      .at_least(0)
      .takes_auto([](Config&) { return std::string("the steps of the run"); })
      .deepspeed("required by DeepSpeed")
      .only_for(kSchedulerType, {"WarmupDecayLR", "WarmupCosineLR", "Linear", "Cosine"});
  params.key("warmup_min_lr", &S::warmup_min_lr, "learning rate at the first step")
      .at_least(0)
      .only_for(kSchedulerType, warmup);
  params.key("warmup_max_lr", &S::warmup_max_lr, "learning rate after the warm-up; 0 or null: the optimizer's lr")
      .at_least(0)
      .nullable()
      .default_note("WarmupDecayLR: 0.001")
      .takes_auto([](Config& c) {
        const bool has_rate = find_given(c, "optimizer.params.lr") != nullptr;
        c.scheduler.warmup_max_lr = has_rate ? c.optimizer.lr : kRateOfTrainer;
        return has_rate ? number_json(c.optimizer.lr) + ", which is optimizer.params.lr"
                        : "0.00005, the default of Hugging Face's Trainer, which takes --learning_rate";
      })
      .only_for(kSchedulerType, warmup);
  params.key("warmup_num_steps", &S::warmup_num_steps, "steps of the warm-up; DeepSpeed's schedulers take at least 2")
      .at_least(0)
      .default_note("WarmupLR, WarmupDecayLR, WarmupCosineLR: 1000")
      .takes_auto([](Config& c) {
        c.scheduler.warmup_num_steps = 0;
        return std::string("0, the default of Hugging Face's Trainer, which takes --warmup_steps");
      })
      .only_for(kSchedulerType, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "Constant", "Linear", "Cosine"});
  params.key("warmup_type", &S::warmup_type, "shape of the warm-up")
      .takes_unknown()
      .deepspeed("takes \"log\" for any other text, also for a misspelt \"linear\", which is refused here")
      .only_for(kSchedulerType, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"});
  params.key("warmup_min_ratio", &S::warmup_min_ratio, "learning rate at the first step, as a share of lr")
      .between(0, 1)
      .only_for(kSchedulerType, {"WarmupCosineLR"});
  params.key("cos_min_ratio", &S::cos_min_ratio, "learning rate at the end, as a share of lr")
      .between(0, 1)
      .only_for(kSchedulerType, {"WarmupCosineLR"});
  params.key("end_ratio", &S::end_ratio, "learning rate at the end, as a share of lr")
      .between(0, 1)
      .own()
      .only_for(kSchedulerType, {"Linear", "Cosine"});
}

void add_range_test(Section<S>& params) {
  const Names range{"LRRangeTest"};
  params.key("lr_range_test_min_lr", &S::range_min_lr, "first learning rate").more_than(0).only_for(kSchedulerType, range);
  params.key("lr_range_test_step_size", &S::range_step_size, "steps between increases")
      .at_least(1)
      .only_for(kSchedulerType, range);
  params.key("lr_range_test_step_rate", &S::range_step_rate, "increase, as a share of the first learning rate")
      .at_least(0)
      .only_for(kSchedulerType, range);
  params.key("lr_range_test_staircase", &S::range_staircase, "increase in steps instead of continuously")
      .only_for(kSchedulerType, range);
}

void add_one_cycle(Section<S>& params) {
  const Names cycle{"OneCycle"};
  params.key("cycle_min_lr", &S::cycle_min_lr, "lowest learning rate; required")
      .at_least(0)
      .refuses_auto("it is required")
      .only_for(kSchedulerType, cycle);
  params.key("cycle_max_lr", &S::cycle_max_lr, "highest learning rate; required")
      .at_least(0)
      .refuses_auto("it is required")
      .only_for(kSchedulerType, cycle);
  params.key("decay_lr_rate", &S::decay_lr_rate, "decay of the learning rate after the cycle")
      .at_least(0)
      .only_for(kSchedulerType, cycle);
  params.key("cycle_first_step_size", &S::cycle_first_step_size, "steps of the first half of the cycle")
      .at_least(1)
      .only_for(kSchedulerType, cycle);
  params.key("cycle_second_step_size", &S::cycle_second_step_size, "steps of the second half; 0: same as the first half")
      .at_least(0)
      .nullable()
      .only_for(kSchedulerType, cycle);
  params.key("cycle_first_stair_count", &S::cycle_first_stair_count, "stairs in the first half; 0: continuous")
      .at_least(0)
      .only_for(kSchedulerType, cycle);
  params.key("cycle_second_stair_count", &S::cycle_second_stair_count, "stairs in the second half; -1: same as the first half")
      .at_least(-1)
      .nullable()
      .only_for(kSchedulerType, cycle);
  params.key("decay_step_size", &S::decay_step_size, "steps between decays after the cycle; 0: no decay")
      .at_least(0)
      .only_for(kSchedulerType, cycle);
  params.key("cycle_momentum", &S::cycle_momentum, "cycle the momentum (beta1) against the learning rate")
      .only_for(kSchedulerType, cycle);
  params.key("cycle_min_mom", &S::cycle_min_mom, "lowest momentum").between(0, 1).below(1).only_for(kSchedulerType, cycle);
  params.key("cycle_max_mom", &S::cycle_max_mom, "highest momentum").between(0, 1).below(1).only_for(kSchedulerType, cycle);
  params.key("decay_mom_rate", &S::decay_mom_rate, "growth of the momentum after the cycle")
      .at_least(0)
      .only_for(kSchedulerType, cycle);
}

}  // namespace

void add_scheduler_keys(KeyTable& table) {
  Section<S> scheduler(table, "scheduler", [](Config& c) -> S& { return c.scheduler; });
  scheduler
      .key("type", &S::type,
           "how the learning rate changes: DeepSpeed's five schedulers, or Constant, Linear or Cosine with warm-up")
      .selects()
      .refuses(schedulers_of_deepspeed())
      .refuses_auto("it decides how weights are trained");
  Section<S> params(table, "scheduler.params", [](Config& c) -> S& { return c.scheduler; });
  add_warmup(params);
  add_range_test(params);
  add_one_cycle(params);
  params.unsupported("last_batch_iteration", "-1", "step to start from; a resumed run takes it from the checkpoint");
}

}  // namespace trivet::config
