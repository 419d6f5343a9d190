// Keys for what is printed, logged and timed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/operation.h"
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

void add_flops_profiler(KeyTable& table) {
  using F = FlopsProfilerConfig;
  Section<F> flops(table, "flops_profiler", [](Config& c) -> F& { return c.flops_profiler; });
  flops.switched("the FLOPs profiler");
  flops.key("enabled", &F::enabled, "report what one step computes, block by block: counted operations and measured times")
      .deepspeed("reports the forward pass of rank 0; here all ranks are measured, and the backward pass is there, too");
  flops.key("profile_step", &F::profile_step, "steps before the one that is profiled").at_least(0);
  flops
      .key("module_depth", &F::module_depth,
           "how deep the report goes: 0: the model, 1: its blocks, 2: their kernels (without times); -1: all")
      .at_least(-1)
      .deepspeed("has a depth for each level of PyTorch modules");
  flops.key("top_modules", &F::top_modules, "modules that the report names at each depth").at_least(1);
  flops.key("detailed", &F::detailed, "list every block, as well");
  flops.key("output_file", &F::output_file, "file for the report; empty: it is printed").nullable();
  flops.inert("recompute_fwd_factor", "0.0", "share of the forward pass that is recomputed",
              "what is recomputed is counted where it runs");
}

// DeepSpeed calls some operations by the names of PyTorch's functions.
std::string operation_of(const std::string& name) {
  if (name == "all_gather_into_tensor") return "all_gather";
  if (name == "reduce_scatter_tensor") return "reduce_scatter";
  if (name == "all_to_all_single") return "all_to_all";
  return name == "recv" || name == "irecv" ? "receive" : name == "isend" ? "send" : name;
}

void set_logged_operations(Config& config, const JsonNode& node) {
  std::vector<std::string>& names = config.comms_logger.prof_ops;
  names.clear();
  for (const JsonNode& item : node.items) {
    const std::string name = operation_of(item.text);
    const std::vector<std::string> known = names_of<Operation>();
    if (item.kind != JsonKind::String || std::find(known.begin(), known.end(), name) == known.end())
      throw std::invalid_argument(fmt::format("use a list of \"{}\"", fmt::join(known, "\", \"")));
    names.push_back(name);
  }
}

std::string logged_operations(const Config& config) {
  std::string text;
  for (const std::string& name : config.comms_logger.prof_ops) text += (text.empty() ? "" : ", ") + quoted(name);
  return "[" + text + "]";
}

void add_comms_logger(KeyTable& table) {
  using C = CommsLoggerConfig;
  Section<C> comms(table, "comms_logger", [](Config& c) -> C& { return c.comms_logger; });
  comms.switched("the logger of communication");
  comms.key("enabled", &C::enabled, "time the operations between ranks, and sum them up at the end of the run")
      .deepspeed("logs whenever the section is there, waits for each operation, and sums up when the program asks for it");
  comms.key("prof_all", &C::prof_all, "log all operations");
  comms.custom("prof_ops", KeyType::List, "the operations that are logged", set_logged_operations, logged_operations)
      .active_when("comms_logger.prof_all is false", [](const Config& c) { return !c.comms_logger.prof_all; });
  comms.key("verbose", &C::verbose, "print a line for each operation, after its step");
  comms.key("debug", &C::debug, "tell the operations of different groups apart")
      .deepspeed("tells those of different calling functions apart");
}

void add_profilers(KeyTable& table) {
  add_flops_profiler(table);
  add_comms_logger(table);
  SectionBase throughput(table, "timers.throughput");
  throughput.inert("enabled", "true", "measure samples per second", "tokens per second are always measured");
  throughput.inert("synchronized", "true", "wait for the device before reading the clock",
                   "the clock is read at the end of each step");
}

}  // namespace

void add_monitoring_keys(KeyTable& table) {
  Section<Config> top(table, "", [](Config& c) -> Config& { return c; });
  top.key("steps_per_print", &Config::steps_per_print, "steps between progress lines").at_least(1).nullable();
  const char* const rarely = "prints it for every step, not only for those that leave a line";
  top.key("wall_clock_breakdown", &Config::wall_clock_breakdown,
          "print where the time of a step goes: forward, backward, communication, update")
      .deepspeed("prints the means since the last line");
  top.key("memory_breakdown", &Config::memory_breakdown, "print the memory that each phase of a step uses").deepspeed(rarely);
  top.unused("dump_state", "false", "print the engine's state at the start").instead("`trivet plan`");
  top.unused("log_level", "null", "log level");
  top.inert("disable_python_gc", "false", "keep Python from collecting garbage in a step", "there is no Python");
  add_run(table);
  add_monitor(table, "csv_monitor", &Config::csv_monitor, "to CSV files");
  add_monitor(table, "tensorboard", &Config::tensorboard, "to files of events, which TensorBoard shows");
  add_timeline(table);
  add_services(table);
  add_profilers(table);
}

}  // namespace trivet::config
