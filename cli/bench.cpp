// trivet bench kernels|comm|step: measures this machine for predictions, and a config's step beside its prediction.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/bench/bench.h"
#include "autotune/rehearsed_step.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/run_job.h"
#include "cli/usage.h"
#include "core/error.h"
#include "engine/backend/cuda_module.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

constexpr const char* kDefaultProfile = "trivet_profile.json";
constexpr const char* kVersion = "0.1.0";

struct BenchArguments {
  std::string what, profile = kDefaultProfile, device = "auto", config;
  std::vector<std::string> overrides;
  int ranks = 0, steps = 5;
  double seconds = 60;
};

DeviceChoice device_of(const std::string& name) {
  if (name == "cpu") return DeviceChoice::Cpu;
  if (name == "cuda") return DeviceChoice::Cuda;
  std::string reason;
  return trivet::find_device(reason) == Device::Cuda ? DeviceChoice::Cuda : DeviceChoice::Cpu;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// The file, and none where there is none yet.
autotune::HardwareProfile profile_at(const std::string& path) {
  return std::filesystem::exists(path) ? autotune::read_profile(path) : autotune::HardwareProfile{};
}

void keep(const BenchArguments& arguments, autotune::MeasuredSetup setup) {
  autotune::HardwareProfile profile = profile_at(arguments.profile);
  profile.version = kVersion, profile.date = today();
  const std::string done =
      fmt::format("{}: {} ranks, {} kernel threads each: {} kernels, {} operations -> {}\n", setup.machine, setup.ranks,
                  setup.threads, setup.kernels.size(), setup.operations.size(), arguments.profile);
  profile.merge(std::move(setup));
  write_profile(profile, arguments.profile);
  fmt::print("{}", done);
}

autotune::BenchOptions options_of(const BenchArguments& arguments, const RankBody& rank) {
  return {.threads = rank.threads,
          .local_rank = rank.local_rank,
          .device = device_of(arguments.device),
          .seconds = arguments.seconds,
          .progress = [](const std::string& line) {
            fmt::print("{}\n", line);
            std::fflush(stdout);
          }};
}

void measure(const BenchArguments& arguments) {
  profile_at(arguments.profile);  // refused before the work
  run_job(arguments.ranks, [&](RankBody rank) {
    const autotune::BenchOptions options = options_of(arguments, rank);
    if (arguments.what == "comm" && rank.world.size() == 1)
      throw ConfigError("bench comm: one rank has nobody to communicate with; give --ranks 2 or start it with trivet launch");
    autotune::MeasuredSetup setup = arguments.what == "kernels" ? autotune::measure_kernels(rank.world, options)
                                                                : autotune::measure_operations(rank.world, options);
    if (rank.world.rank() == 0) keep(arguments, std::move(setup));
  });
}

// What the profile says of this config, or why it says nothing.
std::string prediction(const BenchArguments& arguments, const Plan& plan, const model::Model& model, double measured) {
  if (!std::filesystem::exists(arguments.profile))
    return fmt::format("not predicted: there is no {}; `trivet bench kernels` and `trivet bench comm` write it",
                       arguments.profile);
  const autotune::HardwareProfile profile = autotune::read_profile(arguments.profile);
  const autotune::MeasuredSetup* setup = profile.find(plan.mesh.size());
  if (!setup)
    return fmt::format("not predicted: {} has nothing measured with {} ranks; add it with --ranks {}", arguments.profile,
                       plan.mesh.size(), plan.mesh.size());
  const autotune::MeasuredCostModel costs(*setup, arguments.profile, plan.config.compute_device() == Device::Cpu);
  const autotune::RehearsedStep step = rehearse_step(plan, model, costs);
  const autotune::RehearsedSeconds& p = step.parts;
  return fmt::format(
      "predicted {:.2f} ms, {:.3f} of measured: compute {:.2f}, recompute {:.2f}, tensor axis {:.2f}, pipeline {:.2f}, data "
      "axis "
      "{:.2f}, sums of all {:.2f}, optimizer {:.2f}; {:.1f} % of kernel time by kinds that were not measured; "
      "the profile is of {}",
      1e3 * step.seconds, step.seconds / measured, 1e3 * p.compute, 1e3 * p.recompute, 1e3 * p.tensor, 1e3 * p.pipeline,
      1e3 * p.data, 1e3 * p.all, 1e3 * p.optimizer, 100 * costs.unmeasured_share(), setup->machine);
}

void measure_step(const BenchArguments& arguments) {
  const Config config = load_config(arguments.config, arguments.overrides);
  run_job(arguments.ranks, [&](RankBody rank) {
    model::Model model = model_of(config);
    const Plan plan = make_plan(config, model, rank.world.size());
    autotune::BenchOptions options = options_of(arguments, rank);
    std::vector<double> seconds = autotune::measure_step(rank.world, plan, std::move(model), arguments.steps, options);
    if (rank.world.rank() != 0) return;
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    fmt::print("measured {:.2f} ms a step (median of {}; {:.2f} to {:.2f})\n{}\n", 1e3 * median, seconds.size(),
               1e3 * seconds.front(), 1e3 * seconds.back(), prediction(arguments, plan, model_of(config), median));
  });
}

CLI::App* add_part(CLI::App& bench, const std::shared_ptr<BenchArguments>& arguments, const char* name, const char* text) {
  CLI::App* part = bench.add_subcommand(name, text);
  part->add_option("--ranks", arguments->ranks, "run so many ranks as threads of this process")->check(from_to(1, 1024));
  part->add_option("--profile", arguments->profile, fmt::format("the file of what was measured ({})", kDefaultProfile));
  return part;
}

}  // namespace

void add_bench(CLI::App& program) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* bench = program.add_subcommand("bench", "Measure this machine, so that steps on it can be predicted");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  trivet bench kernels --ranks 2                  kernels, with two ranks at work\n"
      "  trivet bench comm --ranks 2                     what two ranks say to each other\n"
      "  trivet bench step gpt.json --ranks 2            a config's step, measured and predicted");
  for (const char* what : {"kernels", "comm"}) {
    const bool kernels = std::string_view(what) == "kernels";
    CLI::App* part = add_part(*bench, arguments, what,
                              kernels ? "Time kernels in steps of small models of many shapes"
                                      : "Time collective operations and messages of many sizes");
    part->add_option("--seconds", arguments->seconds, "about how long (60)")->check(CLI::Range(1.0, 86400.0));
    part->add_option("--device", arguments->device, "cpu, cuda or auto (auto)")->check(CLI::IsMember({"cpu", "cuda", "auto"}));
    part->callback([arguments, what] {
      arguments->what = what;
      measure(*arguments);
    });
  }
  CLI::App* step = add_part(*bench, arguments, "step", "Time a config's step with made-up tokens, and predict it");
  step->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  step->add_option("--set", arguments->overrides, "key=value: replaces a key of the config; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  step->add_option("--steps", arguments->steps, "how many (5)")->check(from_to(1, 100000));
  step->callback([arguments] { measure_step(*arguments); });
}

}  // namespace trivet::cli
