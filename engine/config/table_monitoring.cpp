// What is printed, logged and timed.
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void add_csv(KeyTable& table) {
  using M = CsvMonitorConfig;
  Section<M> csv(table, "csv_monitor", [](Config& c) -> M& { return c.csv_monitor; });
  const auto enabled = [](const Config& c) { return c.csv_monitor.enabled; };
  const std::string when = "csv_monitor.enabled is true";
  csv.key("enabled", &M::enabled, "write loss and learning rate to CSV files");
  csv.key("output_path", &M::output_path, "folder that holds the folder job_name; empty: the current one")
      .active_when(when, enabled);
  csv.key("job_name", &M::job_name, "folder of the CSV files, below output_path").active_when(when, enabled);
}

void add_timeline(KeyTable& table) {
  using T = TimelineConfig;
  Section<T> timeline(table, "timeline", [](Config& c) -> T& { return c.timeline; });
  const auto recorded = [](const Config& c) { return c.timeline.step > 0; };
  const std::string when = "timeline.step is more than 0";
  timeline
      .key("step", &T::step,
           "the first step that is recorded instruction by instruction and drawn beside its simulation (docs/schedules.md); 0: "
           "none")
      .at_least(0);
  timeline.key("steps", &T::steps, "steps that are recorded from there on; costs are their medians")
      .between(1, 1000)
      .active_when(when, recorded);
  timeline.key("directory", &T::directory, "folder of timeline.svg, measured.json, simulated.json and costs.json")
      .active_when(when, recorded);
}

void add_services(KeyTable& table) {
  SectionBase tensorboard(table, "tensorboard");
  tensorboard.unsupported("enabled", "false", "TensorBoard files");
  tensorboard.unsupported("output_path", "\"\"", "their folder");
  tensorboard.unsupported("job_name", "\"DeepSpeedJobName\"", "folder below it");
  SectionBase wandb(table, "wandb");
  wandb.unsupported("enabled", "false", "Weights & Biases");
  wandb.unsupported("group", "null", "its group");
  wandb.unsupported("team", "null", "its team");
  wandb.unsupported("project", "\"deepspeed\"", "its project");
  SectionBase comet(table, "comet");
  comet.unsupported("enabled", "false", "Comet");
  comet.unsupported("samples_log_interval", "100", "samples between its logs");
  for (const char* name : {"project", "workspace", "api_key", "experiment_name", "experiment_key", "online", "mode"})
    comet.unsupported(name, "null", "setting of Comet");
}

void add_profilers(KeyTable& table) {
  SectionBase flops(table, "flops_profiler");
  flops.unsupported("enabled", "false", "count and time the operations of one step");
  flops.unsupported("profile_step", "1", "the step");
  flops.unsupported("module_depth", "-1", "depth of the report");
  flops.unsupported("top_modules", "1", "length of the report");
  flops.unsupported("detailed", "true", "the whole tree of modules");
  flops.unsupported("output_file", "null", "where the report goes");
  flops.unsupported("recompute_fwd_factor", "0.0", "share of forward that is computed again");
  SectionBase comms(table, "comms_logger");
  comms.unsupported("enabled", "false", "log every collective operation");
  comms.unsupported("prof_all", "true", "all of them");
  comms.unsupported("prof_ops", "[]", "which of them");
  comms.unsupported("verbose", "false", "as they happen");
  comms.unsupported("debug", "false", "with the caller");
  SectionBase throughput(table, "timers.throughput");
  throughput.inert("enabled", "true", "measure samples per second", "tokens per second are always measured");
  throughput.inert("synchronized", "true", "wait for the device before reading the clock", "steps are timed where they end");
}

}  // namespace

void add_monitoring_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  top.key("steps_per_print", &Config::steps_per_print, "steps between lines of progress").at_least(1).nullable();
  top.unsupported("wall_clock_breakdown", "false", "print the time of forward, backward, communication and step")
      .instead("timeline.step");
  top.unsupported("memory_breakdown", "false", "print memory at each phase");
  top.unsupported("dump_state", "false", "print the engine's state at the start; `trivet plan` prints it");
  top.unsupported("log_level", "null", "level of the log");
  add_csv(table);
  add_timeline(table);
  add_services(table);
  add_profilers(table);
}

}  // namespace trivet::config
