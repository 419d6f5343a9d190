// Compares predicted and measured step times for configs that were never measured before: random models and layouts on one and
// on two ranks (as threads, each with its own core). Each step is predicted from the machine's profile before it is measured:
//
//   trivet bench kernels --ranks 1; trivet bench kernels --ranks 2; trivet bench comm --ranks 2
//   prediction_bench [--profile FILE] [--configs N] [--seed N] [--steps N]          default: trivet_profile.json, 60, 1, 7
//
// There is one row per config: predicted and measured (median) ms of a step, their ratio, the config. The last line has the
// median and the largest error and the rank correlation (Spearman's).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "autotune/bench/bench.h"
#include "autotune/rehearsed_step.h"
#include "core/error.h"
#include "core/median.h"
#include "engine/make_plan.h"

namespace trivet {
namespace {

constexpr double kMaxFlops = 100e9;  // per step: about a second on two cores

struct Options {
  std::string profile = "trivet_profile.json";
  int configs = 60, steps = 7;
  unsigned seed = 1;
};

struct Trial {
  Config config;
  int ranks = 1;
};

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int64_t upto(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T of(std::initializer_list<T> values) {
    return values.begin()[upto(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

Trial roll(Dice& dice) {
  Trial trial;
  Config& c = trial.config;
  c.source = "prediction_bench";
  c.model.type = dice.of({model::Type::Gpt, model::Type::Llama});
  c.model.tied_embedding = c.model.type == model::Type::Gpt;
  c.model.hidden_size = dice.of<int64_t>({192, 256, 320, 384, 512, 640, 768});
  c.model.heads = c.model.hidden_size / dice.of<int64_t>({16, 32, 64});
  c.model.layers = 2 + dice.upto(7);
  c.model.sequence_length = 32 * (4 + dice.upto(13));
  c.model.vocabulary_size = dice.of<int64_t>({256, 1000, 5000});
  c.batch.micro_batch_size = dice.of<int64_t>({1, 2, 4});
  c.batch.gradient_accumulation_steps = dice.of<int64_t>({1, 2, 4, 8});
  c.bf16.enabled = dice.upto(2) == 0;
  c.gradient_clipping = 1;
  c.recompute = dice.of({Recompute::None, Recompute::None, Recompute::Full, Recompute::Selective});
  trial.ranks = dice.of({1, 2, 2, 2});
  if (trial.ranks == 1) return trial;
  c.zero.stage = static_cast<int>(dice.upto(4));
  c.zero.overlap_comm = dice.upto(2) == 0;
  const int64_t axis = dice.upto(3);
  if (axis == 1) c.parallel.tensor = 2, c.parallel.sequence_parallel = dice.upto(2) == 0;
  if (axis == 2) {
    c.parallel.pipeline = 2;
    c.pipeline.schedule = dice.of({ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved,
                                   ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubble2p, ScheduleKind::ZeroBubbleV});
    c.batch.gradient_accumulation_steps = dice.of<int64_t>({2, 4, 8});
  }
  return trial;
}

std::string describe(const Trial& trial) {
  const Config& c = trial.config;
  const model::Description& m = c.model;
  return fmt::format("{} {}x{} heads {} seq {} voc {} {} mb {}x{} recompute {} | ranks {} tensor {}{} pipeline {} {} ZeRO-{}{}",
                     name_of(m.type), m.layers, m.hidden_size, m.heads, m.sequence_length, m.vocabulary_size,
                     name_of(c.model_dtype()), c.batch.micro_batch_size, c.batch.gradient_accumulation_steps,
                     name_of(c.recompute), trial.ranks, c.parallel.tensor, c.parallel.sequence_parallel ? " sp" : "",
                     c.parallel.pipeline, c.parallel.pipeline > 1 ? name_of(c.pipeline.schedule) : "", c.zero.stage,
                     c.zero.overlap_comm ? " overlap" : "");
}

// Returns the rank of each value in ascending order.
std::vector<double> places(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> result(values.size());
  for (size_t place = 0; place < order.size(); ++place) result[order[place]] = static_cast<double>(place);
  return result;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n, mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i)
    ab += (a[i] - mean_a) * (b[i] - mean_b), aa += (a[i] - mean_a) * (a[i] - mean_a), bb += (b[i] - mean_b) * (b[i] - mean_b);
  return ab / std::sqrt(aa * bb);
}

int run(const Options& options) {
  const autotune::HardwareProfile profile = autotune::read_profile(options.profile);
  Dice dice(options.seed);
  std::vector<double> predicted, measured, errors;
  fmt::print("predicted  measured  ratio  config (ms)\n");
  while (static_cast<int>(errors.size()) < options.configs) {
    const Trial trial = roll(dice);
    const autotune::MeasuredSetup* setup = profile.find(trial.ranks);
    if (!setup)
      throw ConfigError(fmt::format("{0}: has no measurements with {1} ranks; run trivet bench with --ranks {1}",
                                    options.profile, trial.ranks));
    const auto build = [&] { return model::build(trial.config.model); };
    const model::Model model = build();
    Plan plan;
    try {
      plan = make_plan(trial.config, model, trial.ranks);
    } catch (const ConfigError&) {
      continue;  // this model does not support the layout
    }
    if (plan.model_flops_per_step > kMaxFlops) continue;
    const autotune::MeasuredCostModel costs(*setup, options.profile);
    const autotune::RehearsedStep step = rehearse_step(plan, model, costs);
    std::vector<double> seconds;
    comm::run_threads(trial.ranks, [&](comm::World& world) {
      const autotune::BenchOptions bench{.threads = setup->threads, .own_cores = true};
      auto steps = autotune::measure_step(world, plan, build(), options.steps, bench);
      if (world.rank() == 0) seconds = std::move(steps.seconds);
    });
    predicted.push_back(1e3 * step.seconds);
    measured.push_back(1e3 * median(seconds));
    const double ratio = predicted.back() / measured.back();
    errors.push_back(std::abs(ratio - 1));
    fmt::print("{:9.2f} {:9.2f} {:6.3f}  {}\n", predicted.back(), measured.back(), ratio, describe(trial));
    std::fflush(stdout);
  }
  fmt::print("{} configs: median error {:.1f} %, largest {:.1f} %, rank correlation {:.3f}\n", errors.size(),
             100 * median(errors), 100 * *std::ranges::max_element(errors), correlation(places(predicted), places(measured)));
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  if (argc % 2 == 0) throw ConfigError(std::string(argv[argc - 1]) + ": needs a value");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--profile")
      options.profile = value;
    else if (name == "--configs")
      options.configs = std::stoi(value);
    else if (name == "--seed")
      options.seed = static_cast<unsigned>(std::stoul(value));
    else if (name == "--steps")
      options.steps = std::stoi(value);
    else
      throw ConfigError(name + ": unknown flag; use --profile, --configs, --seed or --steps");
  }
  return options;
}

}  // namespace
}  // namespace trivet

int main(int argc, char** argv) {
  if (!std::getenv("OMP_WAIT_POLICY")) {  // as in trivet's main, so that waiting kernel threads do not spin
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
  }
  try {
    return trivet::run(trivet::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "prediction_bench: {}\n", error.what());
    return 2;
  }
}
