#include "engine/timeline/work_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/rehearsal.h"
#include "engine/timeline/recorder.h"
#include "kernels/observed_kernels.h"

namespace trivet::timeline {
namespace {

using pipeline::Instruction;
using pipeline::Op;
using pipeline::Program;
using pipeline::Recording;

// Keeps the calls of kernels, and is a clock that counts them: what a recorder takes for the time of an instruction is the
// range of its calls.
class CallClock final : public StreamClock, public kernels::KernelObserver {
 public:
  explicit CallClock(std::vector<kernels::KernelCall>& calls) : calls_(calls) {}
  void ended(const kernels::KernelCall& call) override { calls_.push_back(call); }
  Moment now() override { return static_cast<Moment>(calls_.size()); }
  Moment turn(Moment, Moment) override { return now(); }
  double milliseconds(Moment moment) override { return static_cast<double>(moment); }

 private:
  std::vector<kernels::KernelCall>& calls_;
};

bool is_backward(const kernels::KernelCall& call) {
  return call.result != kernels::Result::Other || call.kernel.find("backward") != std::string_view::npos ||
         call.kernel.find("gradient") != std::string_view::npos;
}

// The FLOPs of a product may have those of an activation in them.
double macs_of(const kernels::KernelCall& call) {
  if (call.kernel == "matmul")
    return static_cast<double>(call.sizes[0]) * static_cast<double>(call.sizes[1]) * static_cast<double>(call.sizes[2]);
  return call.bound == kernels::Bound::Products || call.bound == kernels::Bound::Attention ? call.flops / 2 : 0;
}

Work work_of(const kernels::KernelCall& call) { return {.macs = macs_of(call), .flops = call.flops}; }

Work& work_in(BlockProfile& block, Op op, bool backward) {
  if (op == Op::Forward || (op == Op::Loss && !backward)) return block.forward;
  return op == Op::Recompute ? block.recompute : block.backward;
}

void add_calls(const Program& program, const Recording& counted, const std::vector<kernels::KernelCall>& calls,
               WorkProfile& profile) {
  for (const Recording::Span& span : counted.spans) {
    if (span.kind != Recording::Kind::Step) continue;
    const Instruction& instruction = program[span.at];
    if (!computes(instruction.op)) continue;
    BlockProfile& block = profile.blocks[instruction.block];
    for (auto at = static_cast<size_t>(span.start); at < static_cast<size_t>(span.end); ++at) {
      Work& work = work_in(block, instruction.op, is_backward(calls[at]));
      work += work_of(calls[at]);
      if (&work == &block.forward) block.kernels[calls[at].kernel] += work_of(calls[at]);
    }
  }
}

void count_rank(const Plan& plan, const RankPlan& rank, const model::Model& model, const StepNumbers& numbers,
                WorkProfile& profile) {
  std::vector<kernels::KernelCall> calls;
  auto clock = std::make_unique<CallClock>(calls);
  const auto meta = kernels::make_meta_kernels();
  const auto observed = kernels::make_observed_kernels(*meta, *clock);
  Recorder recorder(std::move(clock));
  Rehearsal rehearsal(plan, rank, model, {.kernels = observed.get(), .recorder = &recorder});
  recorder.record(true);
  rehearsal.train_step(numbers);
  add_calls(rank.programs.train, recorder.take().back(), calls, profile);
}

// [instruction] The time in which the rank computed it.
std::vector<double> computing_ms(const Program& program, const Recording& recording) {
  std::vector<double> ms(program.size());
  for (const Recording::Span& span : recording.spans) {
    if (span.at == Recording::kUpdate || span.kind == Recording::Kind::Work) continue;
    ms[span.at] += (span.kind == Recording::Kind::Step ? 1 : -1) * (span.end - span.start);
  }
  return ms;
}

void add_time(BlockProfile& block, Op op, double ms) {
  if (op != Op::Loss) {
    work_in(block, op, true).ms += ms;
    return;
  }
  const double flops = block.forward.flops + block.backward.flops;
  const double share = flops > 0 ? block.forward.flops / flops : 0;
  block.forward.ms += ms * share;
  block.backward.ms += ms * (1 - share);
}

std::string_view phase_of(Op op) {
  switch (op) {
    case Op::Forward: return "forward";
    case Op::Recompute: return "recompute";
    case Op::Loss: return "loss";
    default: return "backward";
  }
}

std::string_view what_is_waited_for(pipeline::Queue queue) {
  const auto axis = pipeline::axis_of(queue);
  return axis ? name_of(*axis) : "all ranks";
}

std::string scaled(double value) {
  for (const auto& [unit, size] : {std::pair{" T", 1e12}, {" G", 1e9}, {" M", 1e6}, {" k", 1e3}})
    if (value >= size) return fmt::format("{:.2f}{}", value / size, unit);
  return fmt::format("{:.0f}", value);
}

std::string per_second(const Work& work) { return work.ms > 0 ? scaled(work.flops / work.ms * 1e3) + "FLOP/s" : "-"; }
double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

constexpr const char* kProfileRow = "{:<28} {:>10} {:>6} {:>10} {:>6} {:>11} {:>6} {:>15} {:>12} {:>12}";

// The sums over all modules at one depth, or over all of one type.
struct Module {
  std::string name;
  int64_t parameters = 0;
  Work forward{}, recompute{}, backward{};
};

Module module_of(const BlockProfile& block, const std::string& name) {
  return {name, block.parameters, block.forward, block.recompute, block.backward};
}

void add(const Module& part, Module& sum) {
  sum.parameters += part.parameters;
  sum.forward += part.forward, sum.recompute += part.recompute, sum.backward += part.backward;
}

Module whole_model(const WorkProfile& profile) {
  Module model{.name = "model"};
  for (const BlockProfile& block : profile.blocks) add(module_of(block, ""), model);
  return model;
}

void add_to(std::vector<Module>& modules, const Module& part) {
  const auto found = std::ranges::find(modules, part.name, &Module::name);
  found == modules.end() ? modules.push_back(part) : add(part, *found);
}

// Groups modules by type, as kernels have none of their own.
std::vector<Module> modules_at(const WorkProfile& profile, int64_t depth) {
  if (depth == 0) return {whole_model(profile)};
  std::vector<Module> modules;
  for (const BlockProfile& block : profile.blocks) {
    if (depth == 1) add_to(modules, module_of(block, block.type));
    if (depth == 2)
      for (const auto& [kernel, work] : block.kernels) add_to(modules, {.name = std::string(kernel), .forward = work});
  }
  return modules;
}

std::string top(std::vector<Module> modules, int64_t count, const std::function<double(const Module&)>& value,
                const std::function<std::string(double)>& text) {
  std::ranges::stable_sort(modules, std::greater{}, value);
  std::string list;
  for (size_t i = 0; i < modules.size() && static_cast<int64_t>(i) < count && value(modules[i]) > 0; ++i)
    list += fmt::format("{}{} {}", i == 0 ? "" : ", ", modules[i].name, text(value(modules[i])));
  return list.empty() ? "-" : list;
}

void add_tops(const WorkProfile& profile, const FlopsProfilerConfig& config, int64_t depth, std::vector<std::string>& lines) {
  const std::vector<Module> modules = modules_at(profile, depth);
  const auto ms = [](double value) { return fmt::format("{:.3f} ms", value); };
  lines.push_back(
      fmt::format("depth {}: parameters: {}; MACs: {}; forward: {}", depth,
                  top(
                      modules, config.top_modules, [](const Module& m) { return static_cast<double>(m.parameters); }, scaled),
                  top(
                      modules, config.top_modules, [](const Module& m) { return m.forward.macs; }, scaled),
                  top(
                      modules, config.top_modules, [](const Module& m) { return m.forward.ms; }, ms)));
}

std::string row(const Module& module, const Module& model, int indent) {
  const auto share = [](double part, double whole) { return fmt::format("{:.1f}%", percent(part, whole)); };
  return fmt::format(kProfileRow, std::string(static_cast<size_t>(2 * indent), ' ') + module.name,
                     scaled(static_cast<double>(module.parameters)),
                     share(static_cast<double>(module.parameters), static_cast<double>(model.parameters)),
                     scaled(module.forward.macs), share(module.forward.macs, model.forward.macs),
                     fmt::format("{:.3f}", module.forward.ms), share(module.forward.ms, model.forward.ms),
                     per_second(module.forward), fmt::format("{:.3f}", module.recompute.ms),
                     fmt::format("{:.3f}", module.backward.ms));
}

void add_details(const WorkProfile& profile, int64_t depth, std::vector<std::string>& lines) {
  const Module model = whole_model(profile);
  lines.push_back(fmt::format(kProfileRow, "module", "parameters", "", "MACs", "", "forward ms", "", "forward", "recompute ms",
                              "backward ms"));
  lines.push_back(row(model, model, 0));
  for (const BlockProfile& block : profile.blocks) {
    if (depth >= 1) lines.push_back(row(module_of(block, block.name), model, 1));
    for (const auto& [kernel, work] : block.kernels)
      if (depth >= 2)
        lines.push_back(fmt::format("    {:<24} {:>17} MACs, {} FLOP", kernel, scaled(work.macs), scaled(work.flops)));
  }
}

void add_totals(const WorkProfile& profile, const Plan& plan, std::vector<std::string>& lines) {
  const Module model = whole_model(profile);
  const auto phase = [&](const char* name, const Work& work) {
    lines.push_back(fmt::format("{:<10} {:>10} MACs {:>10} FLOP {:>10.3f} ms {:>16}", name, scaled(work.macs),
                                scaled(work.flops), work.ms, per_second(work)));
  };
  Work all = model.forward;
  all += model.recompute, all += model.backward;
  phase("forward", model.forward);
  phase("recompute", model.recompute);
  phase("backward", model.backward);
  phase("all", all);
  lines.push_back(fmt::format("optimizer {:.3f} ms, whole step {:.3f} ms, {:.2f} samples/s", profile.update_ms, profile.step_ms,
                              static_cast<double>(plan.batch.train_batch_size) / profile.step_ms * 1e3));
}

}  // namespace

WorkProfile count_work(const Plan& plan, const model::Model& model, const StepNumbers& numbers) {
  WorkProfile profile;
  for (size_t block = 0; block < model.layers.size(); ++block)
    profile.blocks.push_back({.name = model.names[block], .type = std::string(model.layers[block]->type())});
  for (const RankPlan& rank : plan.ranks) {
    if (rank.coordinates[Axis::Tensor] != 0) continue;
    count_rank(plan, rank, model, numbers, profile);
    for (size_t block = 0; block < profile.blocks.size(); ++block)
      for (const zero::FlatGroup& group : rank.layout.blocks[block].groups)
        if (group.role == zero::GroupRole::Own) profile.blocks[block].parameters += group.parameter_elements();
  }
  return profile;
}

void add_times(WorkProfile& profile, const Plan& plan, const std::vector<Recording>& recordings) {
  const double ranks_of_a_block = static_cast<double>(recordings.size()) / plan.mesh.size(Axis::Pipeline);
  for (size_t rank = 0; rank < recordings.size(); ++rank) {
    const Program& program = plan.rank(static_cast<int>(rank)).programs.train;
    const std::vector<double> ms = computing_ms(program, recordings[rank]);
    for (size_t at = 0; at < program.size(); ++at)
      if (computes(program[at].op)) add_time(profile.blocks[program[at].block], program[at].op, ms[at] / ranks_of_a_block);
    profile.update_ms += recordings[rank].update_ms() / static_cast<double>(recordings.size());
    profile.step_ms = std::max(profile.step_ms, recordings[rank].end - recordings[rank].begin);
  }
}

std::string breakdown_of(const Plan& plan, const std::vector<Recording>& recordings) {
  std::map<std::string_view, double> computed, waited;
  double update = 0, step = 0, all = 0;
  for (size_t rank = 0; rank < recordings.size(); ++rank) {
    const Recording& recording = recordings[rank];
    const Program& program = plan.rank(static_cast<int>(rank)).programs.train;
    const std::vector<double> ms = computing_ms(program, recording);
    for (size_t at = 0; at < program.size(); ++at)
      if (computes(program[at].op)) computed[phase_of(program[at].op)] += ms[at];
    update += recording.update_ms();
    step += recording.end - recording.begin;
    for (const Recording::Span& span : recording.spans) {
      if (span.kind != Recording::Kind::Wait) continue;
      waited[what_is_waited_for(span.queue)] += span.end - span.start;
      if (span.at == Recording::kUpdate && span.start >= recording.program_end) update -= span.end - span.start;
    }
  }
  const auto ranks = static_cast<double>(recordings.size());
  std::string text;
  for (const auto* phases : {&computed, &waited}) {
    if (phases == &waited && !waited.empty()) text += "waits: ";
    for (const auto& [name, ms] : *phases) {
      all += ms;
      text += fmt::format("{} {:.2f}, ", name, ms / ranks);
    }
  }
  all += update;
  return fmt::format("{}update {:.2f}, other {:.2f}, step {:.2f} ms", text, update / ranks, (step - all) / ranks, step / ranks);
}

std::vector<std::string> report_of(const WorkProfile& profile, const Plan& plan, int64_t step) {
  const FlopsProfilerConfig& config = plan.config.flops_profiler;
  const int64_t deepest = 2, depth = config.module_depth < 0 ? deepest : std::min(config.module_depth, deepest);
  std::vector<std::string> lines{fmt::format("step {}, {}, microbatch {} x accumulation {}, per rank", step,
                                             to_string(plan.mesh), plan.batch.micro_batch_size,
                                             plan.batch.gradient_accumulation_steps)};
  add_totals(profile, plan, lines);
  for (int64_t level = 0; level <= depth; ++level) add_tops(profile, config, level, lines);
  if (config.detailed) add_details(profile, depth, lines);
  return lines;
}

}  // namespace trivet::timeline
