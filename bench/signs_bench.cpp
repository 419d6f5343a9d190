// Compares the losses of 1-bit Adam, 0/1 Adam and 1-bit LAMB with those of Adam and LAMB on the bytes of a text, and what all
// send:
//
//   signs_bench TEXT [--ranks N] [--steps N] [--freeze N] [--local N] [--adam-lr LR] [--lamb-lr LR]
//       default: 4, 400, 100, 100, 0.001, 0.01
//
// The ranks are threads of one kernel thread each. All runs have the same model, data and seed. Adam and LAMB have no
// correction of the bias here, as in the warm-up of 1-bit Adam and 1-bit LAMB. --freeze is freeze_step and var_freeze_step,
// --local is local_step_scaler. A row has the step, the mean losses of the 20 steps up to it, and after the last step the loss
// on the last tenth of the text: of 0/1 Adam between synchronisations, that of the ranks' own weights.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/error.h"
#include "core/random.h"
#include "engine/config/optimizer_states.h"
#include "engine/engine.h"
#include "engine/rehearsal.h"

namespace trivet {
namespace {

constexpr int64_t kLength = 64, kRowSteps = 20, kHeldOut = 10;

struct Options {
  std::string text;
  int ranks = 4;
  int64_t steps = 400, freeze = 100, local = 100;
  double adam_lr = 1e-3, lamb_lr = 1e-2;
};

struct Optimizer {
  const char* name;
  OptimizerType type;
  bool is_lamb = false;
};

constexpr Optimizer kOptimizers[] = {{"Adam", OptimizerType::AdamW},
                                     {"1-bit Adam", OptimizerType::OneBitAdam},
                                     {"0/1 Adam", OptimizerType::ZeroOneAdam},
                                     {"LAMB", OptimizerType::Lamb, true},
                                     {"1-bit LAMB", OptimizerType::OneBitLamb, true}};

struct Curve {
  std::vector<double> losses;
  double held_out = 0;
  int64_t bytes = 0;  // sent by a rank in all steps
};

Config config_of(const Options& options, const Optimizer& optimizer) {
  Config config;
  config.source = "signs_bench";
  config.model.layers = 2;
  config.model.hidden_size = 64;
  config.model.heads = 4;
  config.model.sequence_length = kLength;
  config.batch = {.train_batch_size = 4 * options.ranks, .micro_batch_size = 4};
  config.optimizer.type = optimizer.type;
  config.optimizer.lr = optimizer.is_lamb ? options.lamb_lr : options.adam_lr;
  config.optimizer.bias_correction = false;
  config.optimizer.freeze_step = config.optimizer.var_freeze_step = options.freeze;
  config.optimizer.local_step_scaler = options.local;
  config.gradient_clipping = 0;
  return config;
}

// Sequences from places that depend on their numbers alone.
struct Sequences {
  std::vector<int32_t> tokens, targets;

  Sequences(const std::string& text, uint64_t stream, int64_t first, int64_t count) {
    for (int64_t s = first; s < first + count; ++s) {
      const size_t start = philox(stream, static_cast<uint64_t>(s), 0)[0] % (text.size() - kLength - 1);
      for (size_t t = start; t < start + kLength; ++t) {
        tokens.push_back(static_cast<uint8_t>(text[t]));
        targets.push_back(static_cast<uint8_t>(text[t + 1]));
      }
    }
  }
  Microbatch view(int64_t samples) const {
    return {{tokens.data(), DType::Int32, {samples, kLength}}, {targets.data(), DType::Int32, {samples, kLength}}, 0};
  }
};

// What a rank sends in all steps: what a rehearsal of each kind of update counts.
int64_t bytes_sent(const Options& options, const Plan& plan, const model::Model& model) {
  std::vector<const comm::ProcessGroup*> groups;
  const auto place = [&](Group group) {
    groups.push_back(group.get());
    return group;
  };
  const auto sent = [&] {
    int64_t bytes = 0;
    for (const comm::ProcessGroup* group : groups) bytes += group->traffic().bytes_sent;
    return bytes;
  };
  Rehearsal rehearsal(plan, plan.rank(0), model, {.place = place});
  std::map<UpdateKind, int64_t> of_kind;
  int64_t bytes = 0;
  for (int64_t update = 1; update <= options.steps; ++update) {
    const UpdateKind kind = kind_of_update(plan.config.optimizer, update);
    if (!of_kind.contains(kind)) {
      const int64_t before = sent();
      rehearsal.train_step({.update = update});
      of_kind[kind] = sent() - before;
    }
    bytes += of_kind[kind];
  }
  return bytes;
}

Curve train(const Options& options, const Optimizer& optimizer) {
  const size_t end = options.text.size() - options.text.size() / kHeldOut;
  const std::string train_text = options.text.substr(0, end), held_out = options.text.substr(end);
  Curve curve;
  comm::run_threads(options.ranks, [&](comm::World& world) {
    const Config config = config_of(options, optimizer);
    model::Model model = model::build(model::with_vocabulary(config.model, 256));
    const Plan plan = make_plan(config, model, world.size());
    if (world.rank() == 0) curve.bytes = bytes_sent(options, plan, model);
    Engine engine(plan, std::move(model), world, {.threads = 1});
    const int64_t samples = config.batch.micro_batch_size;
    for (int64_t step = 0; step < options.steps; ++step) {
      const Sequences batch(train_text, 1, (step * options.ranks + world.rank()) * samples, samples);
      const double loss = engine.train_batch(std::vector{batch.view(samples)}).loss;
      if (world.rank() == 0) curve.losses.push_back(loss);
    }
    const double loss = engine
                            .evaluate(16,
                                      [&, kept = std::vector<Sequences>()](int64_t i) mutable {
                                        kept.emplace_back(held_out, 2, (i * options.ranks + world.rank()) * samples, samples);
                                        return kept.back().view(samples);
                                      })
                            .loss;
    if (world.rank() == 0) curve.held_out = loss;
  });
  return curve;
}

// An empty curve if gradients stop being finite.
Curve train_while_finite(const Options& options, const Optimizer& optimizer) {
  try {
    return train(options, optimizer);
  } catch (const NumericsError& error) {
    fmt::print(stderr, "{}: {}\n", optimizer.name, error.what());
    return {};
  }
}

double mean_before(const Curve& curve, int64_t step) {
  double sum = 0;
  for (int64_t s = step - kRowSteps; s < step; ++s) sum += curve.losses[s];
  return sum / static_cast<double>(kRowSteps);
}

void compare(const Options& options) {
  std::vector<Curve> curves;
  for (const Optimizer& optimizer : kOptimizers) curves.push_back(train_while_finite(options, optimizer));
  const auto row = [&](const std::string& title, auto&& text_of) {
    fmt::print("| {} |", title);
    for (const Curve& curve : curves) fmt::print(" {} |", curve.losses.empty() ? "not finite" : text_of(curve));
    fmt::print("\n");
  };
  fmt::print("variances stay after step {}, learning rates {} and {}\n\n| step |", options.freeze, options.adam_lr,
             options.lamb_lr);
  for (const Optimizer& optimizer : kOptimizers) fmt::print(" {} |", optimizer.name);
  fmt::print("\n|---|---|---|---|---|---|\n");
  for (int64_t step = kRowSteps; step <= options.steps; step += step < 5 * kRowSteps ? kRowSteps : 5 * kRowSteps)
    row(fmt::format("{}", step), [&](const Curve& curve) { return fmt::format("{:.3f}", mean_before(curve, step)); });
  row("held out", [](const Curve& curve) { return fmt::format("{:.3f}", curve.held_out); });
  row("MB that a rank sends in all steps",
      [](const Curve& curve) { return fmt::format("{:.1f}", static_cast<double>(curve.bytes) * 1e-6); });
}

}  // namespace
}  // namespace trivet

int main(int count, char** arguments) {
  trivet::Options options;
  for (int i = 2; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    const std::string value = arguments[i + 1];
    if (name == "--ranks") options.ranks = std::stoi(value);
    if (name == "--steps") options.steps = std::stoll(value);
    if (name == "--freeze") options.freeze = std::stoll(value);
    if (name == "--local") options.local = std::stoll(value);
    if (name == "--adam-lr") options.adam_lr = std::stod(value);
    if (name == "--lamb-lr") options.lamb_lr = std::stod(value);
  }
  std::ifstream file(count > 1 ? arguments[1] : "", std::ios::binary);
  options.text.assign(std::istreambuf_iterator<char>(file), {});
  if (options.text.size() < 10'000) {
    fmt::print(stderr,
               "usage: signs_bench TEXT [--ranks N] [--steps N] [--freeze N] [--local N] [--adam-lr LR] [--lamb-lr LR]; a text "
               "of at least 10,000 bytes\n");
    return 2;
  }
  trivet::compare(options);
}
