// Keys for what is printed, logged and timed.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

// DeepSpeed's sections of the same form: csv_monitor and tensorboard.
void add_monitor(KeyTable& table, const std::string& name, MonitorConfig Config::*member, const std::string& what) {
  using M = MonitorConfig;
  Section<M> section(table, name, [member](Config& c) -> M& { return c.*member; });
  const auto enabled = [member](const Config& c) { return (c.*member).enabled; };
  const std::string when = name + ".enabled is true";
  section.key("enabled", &M::enabled, "write loss and learning rate " + what);
  section.key("output_path", &M::output_path, "folder that contains the folder job_name; empty: the current directory")
      .active_when(when, enabled);
  section.key("job_name", &M::job_name, "folder of the files, inside output_path").active_when(when, enabled);
}

void add_run(KeyTable& table) {
  using R = RunConfig;
  Section<R> run(table, "run", [](Config& c) -> R& { return c.run; });
  run.own();
  run.key("directory", &R::directory,
          "folder for what made the run (config, plan, command, environment, versions), what it measured, and its report.html "
          "(docs/watching.md); empty: none")
      .selects();
  run.key("peak_tflops", &R::peak_tflops,
          "TFLOP/s of one rank's device at its best, to report model FLOPs utilization; 0: not known")
      .at_least(0);
}

void add_timeline(KeyTable& table) {
  using T = TimelineConfig;
  Section<T> timeline(table, "timeline", [](Config& c) -> T& { return c.timeline; });
  timeline.own();
  const auto recorded = [](const Config& c) { return c.timeline.step > 0; };
  const std::string when = "timeline.step is more than 0";
  timeline
      .key("step", &T::step,
           "the first step that is recorded instruction by instruction and drawn next to its simulation (docs/schedules.md); "
           "0: none")
      .at_least(0);
  timeline.key("steps", &T::steps, "number of steps recorded from timeline.step on; costs are medians over them")
      .between(1, 1000)
      .active_when(when, recorded);
  timeline.key("directory", &T::directory, "folder for timeline.svg, measured.json, simulated.json, costs.json and ranks.json")
      .default_note("with run.directory: timeline in that folder")
      .active_when(when, recorded);
}

void add_services(KeyTable& table) {
  SectionBase wandb(table, "wandb");
  wandb.not_used("Weights & Biases", "csv_monitor or tensorboard");
  wandb.unsupported("enabled", "false", "log to Weights & Biases").instead("tensorboard.enabled");
  wandb.unsupported("group", "null", "group of the run");
  wandb.unsupported("team", "null", "team that owns the run");
  wandb.unsupported("project", "\"deepspeed\"", "project of the run");
  SectionBase comet(table, "comet");
  comet.not_used("Comet", "csv_monitor or tensorboard");
  comet.unsupported("enabled", "false", "log to Comet");
  comet.unsupported("samples_log_interval", "100", "samples between logs");
  for (const char* name : {"project", "workspace", "api_key", "experiment_name", "experiment_key", "online", "mode"})
    comet.unsupported(name, "null", "setting of Comet");
}

void add_profilers(KeyTable& table) {
  SectionBase flops(table, "flops_profiler");
  flops.not_used("the FLOPs profiler", "timeline.step or `trivet plan`");
  flops.unsupported("enabled", "false", "count and time the operations of one step");
  flops.unsupported("profile_step", "1", "the step to profile");
  flops.unsupported("module_depth", "-1", "depth of the report");
  flops.unsupported("top_modules", "1", "number of modules in the report");
  flops.unsupported("detailed", "true", "report the complete tree of modules");
  flops.unsupported("output_file", "null", "file for the report");
  flops.unsupported("recompute_fwd_factor", "0.0", "share of the forward pass that is recomputed");
  SectionBase comms(table, "comms_logger");
  comms.not_used("the logger of communication", "timeline.step");
  comms.unsupported("enabled", "false", "log every collective operation");
  comms.unsupported("prof_all", "true", "log all operations");
  comms.unsupported("prof_ops", "[]", "operations to log");
  comms.unsupported("verbose", "false", "print each operation as it happens");
  comms.unsupported("debug", "false", "print the caller of each operation");
  SectionBase throughput(table, "timers.throughput");
  throughput.inert("enabled", "true", "measure samples per second", "tokens per second are always measured");
  throughput.inert("synchronized", "true", "wait for the device before reading the clock",
                   "the clock is read at the end of each step");
}

}  // namespace

void add_monitoring_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  top.key("steps_per_print", &Config::steps_per_print, "steps between progress lines").at_least(1).nullable();
  top.unused("wall_clock_breakdown", "false", "print the time of forward, backward, communication and step")
      .instead("timeline.step");
  top.unused("memory_breakdown", "false", "print memory use in each phase").instead("`trivet plan`");
  top.unused("dump_state", "false", "print the engine's state at the start").instead("`trivet plan`");
  top.unused("log_level", "null", "log level");
  add_run(table);
  add_monitor(table, "csv_monitor", &Config::csv_monitor, "to CSV files");
  add_monitor(table, "tensorboard", &Config::tensorboard, "to files of events, which TensorBoard shows");
  add_timeline(table);
  add_services(table);
  add_profilers(table);
}

}  // namespace trivet::config
