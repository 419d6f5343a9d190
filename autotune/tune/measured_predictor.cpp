#include "autotune/tune/measured_predictor.h"

#include <fmt/format.h>

#include "autotune/bench/bench.h"
#include "autotune/rehearsed_step.h"
#include "comm/participants.h"
#include "core/error.h"
#include "engine/make_plan.h"

namespace trivet::autotune {
namespace {

class MeasuredPredictor final : public StepPredictor {
 public:
  MeasuredPredictor(const MeasuredSetup& setup, const std::string& source, const model::Description& model)
      : costs_(setup, source), model_(model::build(model)) {}

  double seconds(const Config& config, int world_size) override {
    const Plan plan = make_plan(config, model_, world_size);
    return rehearse_step(plan, model_, costs_).seconds;
  }

 private:
  MeasuredCostModel costs_;
  model::Model model_;
};

}  // namespace

HardwareProfile measure_ranks(comm::World& world, Device device, int threads, int local_rank, double seconds) {
  const BenchOptions options{.threads = threads,
                             .local_rank = local_rank,
                             .device = device == Device::Cpu ? DeviceChoice::Cpu : DeviceChoice::Cuda,
                             .seconds = seconds};
  HardwareProfile profile;
  profile.merge(measure_kernels(world, options));
  if (world.size() > 1) profile.merge(measure_operations(world, options));
  const std::string rank_0 = comm::over_group(world.group()).gather(to_json(profile)).front();
  return parse_profile(rank_0, "autotuning");
}

std::unique_ptr<StepPredictor> make_measured_predictor(const HardwareProfile& profile, const std::string& source,
                                                       const model::Description& model, Device device, int threads,
                                                       int world_size) {
  const MeasuredSetup* setup = profile.find(world_size);
  if (!setup)
    throw ConfigError(fmt::format("{}: has no measurements with {} ranks; run {}", source, world_size,
                                  bench_command("kernels", world_size, source)));
  if (setup->threads != threads)
    throw ConfigError(fmt::format("{}: was measured with {} kernel threads per rank, but the trials use {}", source,
                                  setup->threads, threads));
  if (setup->device != device)
    throw ConfigError(fmt::format("{}: was measured on {} (\"{}\"), but the trials run on \"{}\"", source, setup->machine,
                                  name_of(setup->device), name_of(device)));
  return std::make_unique<MeasuredPredictor>(*setup, source, model);
}

}  // namespace trivet::autotune
