// Fuzz targets for what Trivet itself has measured and written: profiles of machines, costs of blocks and metrics of runs.
#include <cmath>
#include <sstream>

#include "autotune/hardware_profile.h"
#include "engine/timeline/block_costs.h"
#include "report/monitor/loss_bits.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

constexpr std::initializer_list<ExitCode> kMeasuredRefused{ExitCode::Usage};

void check_prices(const autotune::MeasuredSetup& setup) {
  accepts(kMeasuredRefused, [&] {
    const autotune::MeasuredCostModel model(setup, "input");
    for (const autotune::KernelSample& k : setup.kernels) {
      const double seconds = model.kernel_seconds({.kernel = k.kernel,
                                                   .variant = k.variant,
                                                   .dtype = k.dtype,
                                                   .sizes = k.sizes,
                                                   .bound = k.bound,
                                                   .flops = k.flops,
                                                   .bytes = k.bytes});
      require(std::isfinite(seconds) && seconds >= 0, "a kernel that was measured has a time");
    }
  });
}

bool nearly(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

}  // namespace

void loss_bits(std::string_view input) {
  accepts(kMeasuredRefused, [&] {
    std::istringstream lines{std::string(input)};
    for (const auto& [step, bits] : monitor::read_loss_bits(lines, "input", 1, 1000))
      require(step >= 1 && step <= 1000, "only the requested steps are returned");
  });
}

void profile(std::string_view input) {
  autotune::HardwareProfile profile;
  if (!accepts(kMeasuredRefused, [&] { profile = autotune::parse_profile(std::string(input), "input"); })) return;
  const std::string written = autotune::to_json(profile);
  require(autotune::to_json(autotune::parse_profile(written, "written")) == written,
          "what was read, written and read again is the same");
  for (const autotune::MeasuredSetup& setup : profile.setups) check_prices(setup);
}

void block_costs(std::string_view input) {
  const std::vector<std::string> names{"embedding", "block 0", "head"};
  std::vector<timeline::BlockCosts> costs;
  if (!accepts(kMeasuredRefused, [&] { costs = timeline::parse_block_costs(input, "input", names); })) return;
  const auto again = timeline::parse_block_costs(timeline::to_json(costs, 1), "written", names);
  for (size_t block = 0; block < names.size(); ++block) {
    require(costs[block].ms.size() == again[block].ms.size(), "a block has the same kinds of work when read again");
    for (const auto& [op, ms] : costs[block].ms) require(nearly(again[block].ms.at(op), ms), "a time is read again");
  }
}

}  // namespace trivet::fuzz
