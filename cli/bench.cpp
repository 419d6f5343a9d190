// trivet bench kernels|comm: measures this machine, so that steps can be predicted. trivet bench step: measures a config's step
// and compares it with its prediction.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/bench/bench.h"
#include "autotune/measured_prediction.h"
#include "autotune/prediction.h"
#include "cli/commands.h"
#include "cli/config_model.h"
#include "cli/number_range.h"
#include "cli/run_job.h"
#include "cli/usage.h"
#include "core/error.h"
#include "engine/backend/cuda_module.h"
#include "engine/config/deepspeed.h"
#include "engine/make_plan.h"
#include "model/dropped_tokens.h"
#include "trainer/load_with_model.h"

namespace trivet::cli {
namespace {

constexpr const char* kDefaultProfile = "trivet_profile.json";

struct BenchArguments {
  std::string what, profile = kDefaultProfile, device = "auto", config;
  std::vector<std::string> overrides;
  int ranks = 0, steps = 5;
  bool kernels = false;
  double seconds = 60;
  bool profile_given = false;
};

DeviceChoice device_choice_of(const std::string& name) {
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

// Reads the profile; it is empty if the file does not exist yet.
autotune::HardwareProfile profile_at(const std::string& path) {
  return std::filesystem::exists(path) ? autotune::read_profile(path) : autotune::HardwareProfile{};
}

// Refuses a profile that cannot be read or written before the measurements start.
void check_profile(const std::string& path) {
  profile_at(path);
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    throw ConfigError(
        fmt::format("{}: {} cannot be written to: {}; give another --profile", path, folder.string(), std::strerror(errno)));
}

void keep(const BenchArguments& arguments, autotune::MeasuredSetup setup) {
  autotune::HardwareProfile profile = profile_at(arguments.profile);
  profile.version = kVersion, profile.date = today();
  const std::string done =
      fmt::format("{}: {} rank(s), {} kernel thread(s) each: {} kernels, {} operations -> {}\n", setup.machine, setup.ranks,
                  setup.threads, setup.kernels.size(), setup.operations.size(), arguments.profile);
  profile.merge(std::move(setup));
  write_profile(profile, arguments.profile);
  fmt::print("{}", done);
}

autotune::BenchOptions options_of(const BenchArguments& arguments, const RankBody& rank) {
  return {.threads = rank.threads,
          .local_rank = rank.local_rank,
          .device = device_choice_of(arguments.device),
          .own_cores = arguments.ranks > 0,
          .seconds = arguments.seconds,
          .progress = [](const std::string& line) {
            fmt::print("{}\n", line);
            std::fflush(stdout);
          }};
}

void measure(const BenchArguments& arguments) {
  check_profile(arguments.profile);
  run_job(arguments.ranks, {}, [&](RankBody rank) {
    const autotune::BenchOptions options = options_of(arguments, rank);
    if (arguments.what == "comm" && rank.world.size() == 1)
      throw ConfigError("bench comm: one rank has nobody to communicate with; give --ranks 2 or start it with trivet launch");
    autotune::MeasuredSetup setup = arguments.what == "kernels" ? autotune::measure_kernels(rank.world, options)
                                                                : autotune::measure_operations(rank.world, options);
    if (rank.world.rank() == 0) keep(arguments, std::move(setup));
  });
}

std::string predicted(const BenchArguments& arguments, const Plan& plan, const model::Model& model, const std::string& machine,
                      double measured) {
  if (!std::filesystem::exists(arguments.profile))
    throw ConfigError(fmt::format(
        "{} does not exist; run {}{}", arguments.profile,
        autotune::bench_command("kernels", plan.mesh.size(), arguments.profile),
        plan.mesh.size() > 1 ? " and " + autotune::bench_command("comm", plan.mesh.size(), arguments.profile) : ""));
  const autotune::HardwareProfile profile = autotune::read_profile(arguments.profile);
  const autotune::MeasuredPrediction prediction = predict_plan(plan, model, profile, arguments.profile);
  const std::string& profiled = profile.find(plan.mesh.size())->machine;
  if (profiled != machine)
    throw ConfigError(fmt::format("{} was measured on {}, but this machine is {}", arguments.profile, profiled, machine));
  std::string text = fmt::format("predicted {:.2f} ms, {:.3f} of the measured time:", 1e3 * prediction.step.seconds,
                                 prediction.step.seconds / measured);
  for (const autotune::NamedValue& part : parts_of(prediction.step.parts))
    if (part.value > 0) text += fmt::format(" {} {:.2f}", part.name, 1e3 * part.value);
  if (prediction.unmeasured_share > 0.005)
    text += fmt::format("; {:.1f} % of the kernels' time is in kinds that were not measured: {}",
                        100 * prediction.unmeasured_share, prediction.unmeasured_kinds);
  return text;
}

// The measured time is printed even if the profile cannot predict it.
std::string predicted_or_why_not(const BenchArguments& arguments, const Plan& plan, const model::Model& model,
                                 const std::string& machine, double measured) {
  try {
    return predicted(arguments, plan, model, machine, measured);
  } catch (const ConfigError& error) {
    return fmt::format("not predicted: {}", error.what());
  }
}

void measure_kernels_of_step(const BenchArguments& arguments) {
  Config config = trainer::load_with_model({.path = arguments.config, .overrides = arguments.overrides});
  tell_keys_not_given(config);
  config.model = model::with_most_tokens(config.model);
  config.zero.overlap_comm = false;  // kernels take as long, and all are called by the thread that times them
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    model::Model model = model_of(config);
    const Plan plan = make_plan(config, model, rank.world.size());
    const autotune::StepKernels kernels =
        autotune::measure_step_kernels(rank.world, plan, std::move(model), arguments.steps, options_of(arguments, rank));
    if (rank.world.rank() == 0) fmt::print("{}", autotune::to_text(kernels));
  });
}

void measure_step(const BenchArguments& arguments) {
  Config config = trainer::load_with_model({.path = arguments.config, .overrides = arguments.overrides});
  tell_keys_not_given(config);
  if (arguments.profile_given) autotune::read_profile(arguments.profile);  // refused before the steps are timed
  config.model = model::with_most_tokens(config.model);
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    model::Model model = model_of(config);
    const Plan plan = make_plan(config, model, rank.world.size());
    auto [machine, seconds] =
        autotune::measure_step(rank.world, plan, std::move(model), arguments.steps, options_of(arguments, rank));
    if (rank.world.rank() != 0) return;
    std::ranges::sort(seconds);
    const double median = seconds[seconds.size() / 2];
    fmt::print("measured {:.2f} ms a step (median of {}; {:.2f} to {:.2f})\n{}\n", 1e3 * median, seconds.size(),
               1e3 * seconds.front(), 1e3 * seconds.back(),
               predicted_or_why_not(arguments, plan, model_of(config), machine, median));
  });
}

CLI::App* add_part(CLI::App& bench, const std::shared_ptr<BenchArguments>& arguments, const char* name, const char* text) {
  CLI::App* part = bench.add_subcommand(name, text);
  part->add_option("--ranks", arguments->ranks, "run this many ranks as threads of this process")->check(from_to(1, 1024));
  part->add_option("--profile", arguments->profile, fmt::format("the file that holds the measurements ({})", kDefaultProfile));
  return part;
}

}  // namespace

void add_bench(CLI::App& program) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* bench = program.add_subcommand("bench", "Measure this machine, so that steps on it can be predicted");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  trivet bench kernels --ranks 2                  kernels, while two ranks work at once\n"
      "  trivet bench comm --ranks 2                     communication between two ranks\n"
      "  trivet bench step gpt.json --ranks 2            a config's step, measured and predicted\n"
      "  trivet bench step gpt.json --kernels            the time of each kernel in a step");
  for (const char* what : {"kernels", "comm"}) {
    const bool kernels = std::string_view(what) == "kernels";
    CLI::App* part = add_part(*bench, arguments, what,
                              kernels ? "Time kernels in steps of small models of many shapes"
                                      : "Time collective operations and messages of many sizes");
    part->add_option("--seconds", arguments->seconds,
                     kernels ? "approximate duration in seconds (60); at least 12 models are measured, however long that takes"
                             : "approximate duration in seconds (60)")
        ->check(number_from_to(1, 86400));
    part->add_option("--device", arguments->device, "cpu, cuda or auto (auto)")->check(CLI::IsMember({"cpu", "cuda", "auto"}));
    part->callback([arguments, what] {
      arguments->what = what;
      measure(*arguments);
    });
  }
  CLI::App* step = add_part(*bench, arguments, "step", "Time a config's step with made-up samples, and predict it");
  step->add_option("config", arguments->config, "JSON file (docs/config.md)")->required();
  step->add_option("--set", arguments->overrides,
                   "key=value: replaces a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  step->add_option("--steps", arguments->steps, "number of steps to time (5)")->check(from_to(1, 100000));
  step->add_flag("--kernels", arguments->kernels, "print how long each kernel takes instead, those that take most time first");
  step->callback([arguments, step] {
    arguments->profile_given = step->get_option("--profile")->count() > 0;
    arguments->kernels ? measure_kernels_of_step(*arguments) : measure_step(*arguments);
  });
}

}  // namespace trivet::cli
