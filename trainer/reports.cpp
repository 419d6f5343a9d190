#include "trainer/reports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>

#include "comm/nccl_network.h"
#include "core/file_system.h"
#include "core/host_memory.h"
#include "data/counted_targets.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/deepspeed.h"
#include "engine/config/load.h"
#include "engine/config/vocabulary_rows.h"
#include "engine/optimizer/lr_schedule.h"
#include "report/live_run.h"
#include "report/monitor/console.h"
#include "report/monitor/csv.h"
#include "report/monitor/jsonl.h"
#include "report/monitor/number_text.h"
#include "report/monitor/tensorboard.h"
#include "report/read_run.h"
#include "trainer/admission.h"
#include "trainer/epochs.h"
#include "trainer/run_folder.h"

namespace trivet::trainer {
namespace {

using Fact = std::pair<std::string, std::string>;

double in_mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string model_line(const Run& run) {
  const model::Description& model = run.config.model;
  const std::string words =
      model::family_of(model.type)
          .in_words(model::with_vocabulary(model, vocabulary_rows(run.config, run.data->vocabulary_size())));
  const Plan& plan = run.engine.plan();
  return fmt::format("{}, {}, {} parameters{}", name_of(model.type), words, plan.parameters,
                     plan.active_parameters == plan.parameters ? "" : fmt::format(" ({} for a token)", plan.active_parameters));
}

// A mixture names its sources itself.
std::string data_line(const Run& run) {
  const bool unused = !run.config.training.evaluates() && !run.data->validation_digest().empty();
  const char* const note = unused ? ", which are not used without training.evaluate_every" : "";
  if (!run.config.data.sources.empty()) return run.data->sizes() + note;
  return fmt::format("{}: {}{}", run.config.data.train_name(), run.data->sizes(), note);
}

// "books.tokens 700 samples (1.4 epochs), web.tokens 300 (0.1)"
std::string sources_line(const Run& run) {
  const std::vector<int64_t> read = run.batches.sampler().samples_of_sources(run.steps_done());
  const std::vector<int64_t> sizes = run.data->train()->sizes_of_sources();
  std::string text;
  for (size_t i = 0; i < read.size(); ++i)
    text += fmt::format("{}{} {}{} ({:.4g}{})", i == 0 ? "" : ", ", run.config.data.sources[i].path,
                        monitor::with_commas(read[i]), i == 0 ? " samples" : "",
                        static_cast<double>(read[i]) / static_cast<double>(sizes[i]), i == 0 ? " epochs" : "");
  return text;
}

std::string plan_line(const Run& run) {
  const Plan& plan = run.engine.plan();
  return fmt::format("ZeRO-{} on {}, {}, batch {} = {} x {} x {}, kernel threads per rank: {}", run.config.zero.stage,
                     to_string(plan.mesh), name_of(run.config.model_dtype()), plan.batch.train_batch_size,
                     plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps, plan.mesh.size(batch_axes()),
                     run.options.threads);
}

std::string planned_memory_line(const Plan& plan) {
  std::string text;
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text += fmt::format("{} {:.1f} + ", name, in_mebibytes(plan.heaviest().memory[category]));
  text.resize(text.size() - 3);
  return fmt::format("{} = {:.1f} MiB per rank", text, in_mebibytes(plan.heaviest().memory.total()));
}

// A config that says "cpu" gets no line about its device.
void add_device_facts(Run& run, std::vector<Fact>& facts) {
  const Plan& plan = run.engine.plan();
  const bool on_cpu = plan.config.compute_device() == Device::Cpu;
  if (plan.found_device || !on_cpu)
    facts.push_back(
        {"device", (plan.found_device ? "auto: " : "") + (on_cpu ? *plan.found_device : run.engine.backend().description())});
  if (plan.config.compute_device() != Device::Cuda) return;
  facts.push_back({"launches", to_text(plan.step_graph)});
  if (!run.world.network().empty())  // the ranks are on several hosts
    facts.push_back(
        {"NCCL", "between hosts: " + comm::expected_nccl_network(comm::current_environment(), comm::rdma_surroundings())});
}

// "0.001 x 8 = 0.008 for batch 256 (linear, chosen for 32), reached after 780 steps of warm-up"; empty without
// optimizer.lr_scaling.
std::string scaled_lr_line(const Run& run) {
  const Config& config = run.engine.plan().config;
  const int64_t batch = run.engine.plan().batch.train_batch_size, warmup = config.lr_scaling_warmup_steps;
  if (config.lr_scaling == LrScaling::None) return "";
  const double factor = lr_factor(config.lr_scaling, config.lr_scaling_base_batch, batch);
  return fmt::format("{:.6g} x {:.6g} = {:.6g} for batch {} ({}, chosen for {}){}", config.optimizer.lr, factor,
                     config.optimizer.lr * factor, batch, name_of(config.lr_scaling), config.lr_scaling_base_batch,
                     warmup > 0 ? fmt::format(", reached after {} steps of warm-up", monitor::with_commas(warmup)) : "");
}

// "3 evaluations in a row did not lower the best validation loss; it is 2.0460, after step 90"
std::string why_it_ended_early(const Run& run) {
  const EvaluationState& state = run.evaluations.state();
  const double threshold = run.config.training.early_stopping_threshold;
  const std::string by = threshold > 0 ? fmt::format(" by more than {:.6g}", threshold) : "";
  if (state.best_step == 0) return fmt::format("{} evaluations in a row had no finite loss", state.without_improvement);
  return fmt::format("{} evaluations in a row did not lower the best validation loss{}; it is {:.4f}, after step {}",
                     state.without_improvement, by, state.best_loss, monitor::with_commas(state.best_step));
}

// "checkpoints/best, step 90: validation loss 2.0460"; empty if no step is kept as the best. A run that continues another run
// from its directory may have its best step there.
std::string best_line(const Run& run) {
  const EvaluationState& state = run.evaluations.state();
  if (state.best_step == 0 || !run.evaluations.keeps(state.best_step) || run.engine.progress().updates == 0) return "";
  const std::string& directory = run.config.checkpoint.directory;
  const std::string name = fmt::format("{}/{}", directory, checkpoint::kBestName);
  const std::string step =
      fmt::format("step {}: validation loss {:.4f}", monitor::with_commas(state.best_step), state.best_loss);
  const std::string named_step =
      checkpoint::names_step(real_file_system(), name) ? checkpoint::follow_name(real_file_system(), name) : "";
  const bool named = named_step.ends_with("/" + checkpoint::step_directory_name(state.best_step));
  return named ? fmt::format("{}, {}", name, step) : fmt::format("{}; {} has no checkpoint of it", step, directory);
}

// "12 of 40 training samples, 1 of 8 validation samples have no token ..."; empty if all have one.
std::string samples_without_targets_line(const Run& run) {
  std::vector<std::string> parts;
  const auto add = [&](const data::SampleSource& source, const char* of) {
    if (const int64_t none = data::samples_without_targets(source); none > 0)
      parts.push_back(
          fmt::format("{} of {} {} samples", monitor::with_commas(none), monitor::with_commas(source.samples()), of));
  };
  add(*run.data->train(), "training");
  const bool evaluates = run.config.training.evaluates() && !run.data->validation_digest().empty();
  if (const auto validation = evaluates ? run.data->validation() : nullptr) add(*validation, "validation");
  if (parts.empty()) return "";
  return fmt::format("{} have no token that the loss counts; a step that has only such samples is skipped",
                     fmt::join(parts, " and "));
}

// Lines on keys, which begin with these, as they are if they are few.
std::vector<std::string> in_short(const std::vector<std::string>& lines) {
  constexpr size_t kFew = 3;
  if (lines.size() <= kFew) return lines;
  constexpr size_t kMostNamed = 8;  // a run's own config.json gives every default
  std::string keys;
  for (size_t i = 0; i < std::min(lines.size(), kMostNamed); ++i)
    keys += (keys.empty() ? "" : ", ") + lines[i].substr(0, lines[i].find(": "));
  return {fmt::format("{} keys (`trivet config check` says why): {}{}", lines.size(), keys,
                      lines.size() > kMostNamed ? fmt::format(" and {} more", lines.size() - kMostNamed) : "")};
}

void add_notes(const Run& run, std::vector<Fact>& facts) {
  for (const std::string& line : run.data->notes()) facts.push_back({"files", line});
  if (run.steps_done() >= run.total_steps())
    facts.push_back({"note", fmt::format("nothing to do: step {} is already done, and the run ends at step {}",
                                         run.steps_done(), run.total_steps())});
  else if (run.evaluations.is_out_of_patience())
    facts.push_back({"note", fmt::format("nothing to do: the run has ended after step {}, because {}", run.steps_done(),
                                         why_it_ended_early(run))});
  const int64_t timeline_step = run.config.timeline.step;
  if (timeline_step > 0 && timeline_step <= run.steps_done())
    facts.push_back({"note", fmt::format("timeline.step {} is already done, so nothing is recorded", timeline_step)});
  const FlopsProfilerConfig& profiler = run.config.flops_profiler;
  if (profiler.enabled && profiler.profile_step < run.steps_done())
    facts.push_back(
        {"note", fmt::format("the step after flops_profiler.profile_step {} is already done, so nothing is profiled",
                             profiler.profile_step)});
  for (const std::string& line : differences_from_deepspeed(run.config)) facts.push_back({"differs", line});
  Config with_steps = run.engine.plan().config;  // with the end of its schedule, and its steps if it counts epochs
  with_steps.training.steps = run.total_steps();
  for (const std::string& line : warnings_of(with_steps)) facts.push_back({"warning", line});
  for (const std::string& line : warnings_of_rates(with_steps)) facts.push_back({"warning", line});
  for (const std::string& line : auto_lines_in_short(run.config)) facts.push_back({"taken", line});
  for (const std::string& line : in_short(accepted_without_effect(run.config))) facts.push_back({"no effect", line});
}

// Shows planned and measured memory side by side. The peak of resident memory is the operating system's figure for the
// process, with all of its ranks.
std::string measured_memory_line(const Run& run, const Checkpoints& checkpoints) {
  const RankPlan& plan = run.engine.plan().rank(run.world.rank());
  const MemoryBytes &planned = plan.memory, measured = measured_memory(run, checkpoints);
  std::string text;
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    text += fmt::format("{} {:.1f}/{:.1f}, ", name, in_mebibytes(planned[category]), in_mebibytes(measured[category]));
  text += fmt::format("total {:.1f} MiB planned / {:.1f} measured; ", in_mebibytes(planned.total()),
                      in_mebibytes(measured.total()));
  if (run.engine.plan().config.uses_host_side())
    text += fmt::format("host memory {:.1f} planned / {:.1f} measured; ", in_mebibytes(plan.host_memory.total()),
                        in_mebibytes(run.engine.measured_host_memory().total()));
  const int64_t peak = peak_resident_memory();
  return text + (peak < 0 ? "process peak not known" : fmt::format("process peak {:.1f} resident", in_mebibytes(peak)));
}

std::string how_to_go_on(const Run& run, int signal, Checkpoints& checkpoints) {
  const std::string stopped = fmt::format("by signal {} after step {} of {}; ", signal, run.steps_done(), run.total_steps());
  if (!checkpoints.store()) return stopped + "nothing is saved, because checkpoint.directory is not given";
  const int64_t newest = checkpoints.store()->newest_step();
  if (newest < 0) return stopped + "nothing is saved";
  return fmt::format("{}step {} is saved; to continue from it, run the same command with --resume", stopped, newest);
}

std::string name_of_run(const Config& config) {
  if (config.run.directory.empty()) return config.source;
  const std::filesystem::path folder = std::filesystem::path(config.run.directory).lexically_normal();
  return folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
}

// Empty if the run leaves no page. A browser does not know the folder in which the run was started.
std::string absolute_report_path(const Run& run) {
  std::error_code none;
  const std::string path = report_path(run);
  return path.empty() ? "" : std::filesystem::absolute(path, none).lexically_normal().string();
}

// Returns its address.
std::string add_live_page(Run& run) {
  const Plan& plan = run.engine.plan();
  report::RunData known;
  known.name = name_of_run(run.config);
  known.plan = report::parse_plan_figures(to_json(plan), "plan");
  known.plan.peak_flops = 1e12 * run.config.run.peak_tflops;
  known.plan_text = to_text(plan);
  known.config_json = run.options.config_text;
  known.report_path = absolute_report_path(run);
  auto page = std::make_unique<report::LiveRun>(*run.options.serve_port, std::move(known));
  std::string address = page->address();
  run.monitors.add(std::move(page));
  return address;
}

std::vector<monitor::MemoryPeak> memory_peaks(const Run& run, const Checkpoints& checkpoints) {
  const MemoryBytes &planned = run.engine.plan().rank(run.world.rank()).memory, measured = measured_memory(run, checkpoints);
  std::vector<monitor::MemoryPeak> peaks;
  for (const auto& [name, category] : EnumNames<MemoryCategory>::table)
    peaks.push_back({std::string(name), planned[category], measured[category]});
  return peaks;
}

}  // namespace

std::string add_monitors(Run& run) {
  const Config& config = run.config;
  if (run.is_first_rank())
    run.monitors.add(std::make_unique<monitor::Console>(std::cout, monitor::options_for_stdout(config.steps_per_print)));
  open_run_folder(run);
  if (!run.is_first_rank()) return "";
  if (!run.options.metrics_file.empty()) run.monitors.add(metrics_monitor(run.options.metrics_file));
  if (config.csv_monitor.enabled)
    run.monitors.add(std::make_unique<monitor::CsvMonitor>(config.csv_monitor.output_path, config.csv_monitor.job_name));
  if (config.tensorboard.enabled)
    run.monitors.add(
        std::make_unique<monitor::TensorBoardMonitor>(config.tensorboard.output_path, config.tensorboard.job_name));
  return run.options.serve_port ? add_live_page(run) : "";
}

void report_start(Run& run, const StartFacts& facts, Checkpoints& checkpoints) {
  monitor::RunStart start{.steps_done = run.steps_done(),
                          .samples_done = run.steps_done() * run.batches.layout().global_batch(),
                          .total_steps = run.total_steps(),
                          .address = facts.address};
  start.targets = run.target_words();
  start.has_experts = run.config.model.experts.enabled();
  start.learns_answers = start.targets == monitor::kTokens && run.data->train()->may_lack_targets();
  start.facts = {{"model", model_line(run)},
                 {"data", data_line(run)},
                 {"plan", plan_line(run)},
                 {"memory", planned_memory_line(run.engine.plan())}};
  if (const std::string none = run.is_first_rank() ? samples_without_targets_line(run) : ""; !none.empty())
    start.facts.push_back({"note", none});
  if (const std::string epochs = describe_epochs(run.config, run.batches.samples(), run.batches.sampler()); !epochs.empty())
    start.facts.push_back({"epochs", epochs});
  if (run.admissions) start.facts.push_back({"samples", trainer::describe_admissions(run.config, *run.admissions)});
  if (const std::string lr = scaled_lr_line(run); !lr.empty()) start.facts.push_back({"lr", lr});
  if (const std::string network = run.world.network(); !network.empty()) start.facts.push_back({"network", network});
  if (!checkpoints.saves())
    start.facts.push_back(
        {"saves", "nothing: checkpoint.directory is not given, so the weights are gone when the run has ended"});
  if (checkpoints.memory()) start.facts.push_back({"saves", checkpoints.memory()->description()});
  add_device_facts(run, start.facts);
  if (!facts.resumed_from.empty()) start.facts.push_back({"resume", facts.resumed_from});
  if (!facts.weights_from.empty()) start.facts.push_back({"weights", facts.weights_from});
  if (const std::string note = note_on_adapters(run.config);
      !note.empty() && facts.weights_from.empty() && facts.resumed_from.empty())
    start.facts.push_back({"note", note});
  if (!facts.reference.empty()) start.facts.push_back({"reference", facts.reference});
  add_notes(run, start.facts);
  run.monitors.on_start(start);
}

void report_end(Run& run, const TrainEnd& end, Checkpoints& checkpoints) {
  std::vector<Fact> facts{{"memory", measured_memory_line(run, checkpoints)}};
  if (const std::string sources = sources_line(run); !sources.empty()) facts.push_back({"sources", sources});
  if (checkpoints.last_saved() > 0)
    facts.push_back({"checkpoint", fmt::format("{}, step {}", run.config.checkpoint.directory, checkpoints.last_saved())});
  else if (!checkpoints.saves())
    facts.push_back({"checkpoint", "none: --set checkpoint.directory=DIR keeps the weights of the next run"});
  if (const std::string best = best_line(run); !best.empty()) facts.push_back({"best", best});
  if (end.early)
    facts.push_back({"stopped", fmt::format("early, after step {} of {}: {}", monitor::with_commas(run.steps_done()),
                                            monitor::with_commas(run.total_steps()), why_it_ended_early(run))});
  if (end.signal != 0) facts.push_back({"stopped", how_to_go_on(run, end.signal, checkpoints)});
  if (const std::string path = report_path(run); !path.empty()) facts.push_back({"report", path});
  run.monitors.on_end({facts, memory_peaks(run, checkpoints)});
  write_report(run);
}

MemoryBytes measured_memory(const Run& run, const Checkpoints& checkpoints) {
  MemoryBytes bytes = run.engine.measured_memory();
  if (run.engine.plan().config.compute_device() != Device::Cpu) return bytes;
  const MemoryBytes staged = checkpoints.staging_memory();
  for (int i = 0; i < kMemoryCategories; ++i) bytes.by_category[i] += staged.by_category[i];
  return bytes;
}

}  // namespace trivet::trainer
