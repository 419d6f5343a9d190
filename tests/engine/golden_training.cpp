#include "tests/engine/golden_training.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "engine/checkpoint_pieces.h"
#include "engine/config/load.h"
#include "tests/engine/overflowing_layer.h"
#include "tests/model/read_safetensors.h"

namespace trivet::test {
namespace {

const std::string kFolder = TRIVET_SOURCE_DIR "/tests/golden/training/";

// Data that all runs share. Tensors are named "MODEL.PARAMETER" and "RUN.PARAMETER".
struct SharedGoldens {
  std::map<std::string, model::GoldenTensor> models = model::read_safetensors(kFolder + "models.safetensors");
  std::map<std::string, model::GoldenTensor> weights = model::read_safetensors(kFolder + "weights.safetensors");
  std::map<std::string, model::GoldenTensor> data = model::read_safetensors(kFolder + "data.safetensors");
  nlohmann::json runs = nlohmann::json::parse(std::ifstream(kFolder + "runs.json"));
};

const SharedGoldens& shared() {
  static const SharedGoldens goldens;
  return goldens;
}

NamedValues of_prefix(const std::map<std::string, model::GoldenTensor>& tensors, const std::string& prefix) {
  NamedValues values;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix + ".")) values[name.substr(prefix.size() + 1)] = tensor.values;
  return values;
}

// Rows [first, first + samples) of batch number `batch`. The batch after the last step is for evaluation.
struct GoldenMicrobatch {
  std::vector<int32_t> tokens, targets;
  Microbatch view;

  GoldenMicrobatch(int64_t batch, int64_t first, int64_t samples) {
    const Shape shape = shared().data.at("tokens").shape;  // [batches, samples of a batch, sequence]
    const int64_t sequence = shape[2], begin = (batch * shape[1] + first) * sequence;
    const auto part = [&](const char* name) {
      const auto values = shared().data.at(name).values.begin() + begin;
      return std::vector<int32_t>(values, values + samples * sequence);
    };
    tokens = part("tokens");
    targets = part("targets");
    view = {{tokens.data(), DType::Int32, {samples, sequence}}, {targets.data(), DType::Int32, {samples, sequence}}, first};
  }
};

// This rank's share of a batch.
std::vector<GoldenMicrobatch> microbatches_of(const Plan& plan, int rank, int64_t batch) {
  std::vector<GoldenMicrobatch> microbatches;
  const int64_t micro = plan.batch.micro_batch_size;
  for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m)
    microbatches.emplace_back(batch, (m * plan.mesh.size(Axis::Data) + plan.mesh.coordinate_of(rank, Axis::Data)) * micro,
                              micro);
  return microbatches;
}

std::vector<Microbatch> views_of(const std::vector<GoldenMicrobatch>& microbatches) {
  std::vector<Microbatch> views;
  for (const auto& microbatch : microbatches) views.push_back(microbatch.view);
  return views;
}

TrainingTrace train_on_rank(const GoldenRun& run, const TrainingPlace& place, comm::World& world) {
  const Config config = parse_config(run.config, run.name, place.overrides);
  model::Model model = model::build(config.model);
  bool overflows = false;
  model.layers[2] = std::make_unique<Overflowing>(std::move(model.layers[2]), overflows);
  Plan plan = make_plan(config, model, world.size());
  Engine engine(std::move(plan), std::move(model), world);
  set_weights(engine, of_prefix(shared().models, run.model));
  TrainingTrace trace;
  const auto steps = static_cast<int64_t>(run.trace.loss.size());
  for (int64_t step = 0; step < steps; ++step) {
    const auto microbatches = microbatches_of(engine.plan(), world.rank(), step);
    overflows = world.rank() == 0 && run.trace.skipped[step];
    trace.lr.push_back(engine.learning_rate());
    const StepResult result = engine.train_batch(views_of(microbatches));
    trace.loss.push_back(result.loss);
    trace.grad_norm.push_back(result.grad_norm);
    trace.skipped.push_back(result.skipped);
    trace.counted_targets.push_back(result.targets);
  }
  const auto microbatches = microbatches_of(engine.plan(), world.rank(), steps);
  const StepResult evaluation = engine.evaluate(views_of(microbatches));
  trace.evaluation = evaluation.loss;
  trace.evaluated_targets = evaluation.targets;
  trace.weights = weights_of(engine);
  return trace;
}

int64_t counted_targets(int64_t batch) {
  const model::GoldenTensor& targets = shared().data.at("targets");
  const int64_t size = targets.shape[1] * targets.shape[2];
  const auto first = targets.values.begin() + batch * size;
  return std::count_if(first, first + size, [](double target) { return target >= 0; });
}

GoldenRun read_run(const nlohmann::json& json) {
  GoldenRun run{.name = json.at("name"), .model = json.at("model"), .config = json.at("config").dump()};
  TrainingTrace& trace = run.trace;
  trace.loss = json.at("loss").get<std::vector<double>>();
  trace.lr = json.at("lr").get<std::vector<double>>();
  trace.skipped.resize(trace.loss.size(), false);
  for (const size_t step : json.at("skipped")) trace.skipped[step] = true;
  for (const auto& norm : json.at("grad_norm")) trace.grad_norm.push_back(norm.is_null() ? 0 : norm.get<double>());
  for (size_t step = 0; step < trace.loss.size(); ++step)
    trace.counted_targets.push_back(counted_targets(static_cast<int64_t>(step)));
  trace.evaluation = json.at("evaluation");
  trace.evaluated_targets = shared().runs.at("evaluated_targets");
  if (json.at("weights")) trace.weights = of_prefix(shared().weights, run.name);
  const auto& rounding = json.at("rounding");
  run.rounding = {rounding.at("loss"), rounding.at("grad_norm"), rounding.at("evaluation"), rounding.at("weights")};
  return run;
}

// A softmax does not change when all scores of a query change by the same amount, so the gradient of a key's bias is zero
// except for rounding. An optimizer that divides by the size of a gradient can turn it into anything. No loss depends on it.
bool is_uncertain(const std::string& name, size_t element, size_t elements) {
  return name.ends_with("attention.qkv.bias") && element >= elements / 3 && element < elements / 3 * 2;
}

// Returns the larger one, or NaN if either is NaN; std::max(most, NaN) would be `most`.
double larger(double most, double x) { return std::isnan(most) || x <= most ? most : x; }

double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }

double difference_of_weights(const NamedValues& expected, const NamedValues& actual, const NamedValues& initial) {
  double most = 0;
  for (const auto& [name, values] : expected) {
    const std::vector<double>&others = actual.at(name), &first = initial.at(name);
    double distance = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (is_uncertain(name, i, values.size())) continue;
      distance = std::max(distance, std::abs(values[i] - first[i]));
      difference = larger(difference, std::abs(others.at(i) - values[i]));
    }
    most = larger(most, difference / distance);
  }
  return most;
}

}  // namespace

void set_weights(Engine& engine, const NamedValues& initial) {
  const auto fill = [&](std::span<const checkpoint::Piece> pieces) {
    for (const checkpoint::Piece& piece : pieces) {
      if (piece.name.starts_with("optimizer.")) continue;  // states keep their initial values
      const double* from = initial.at(piece.name).data() + piece.first;
      std::copy(from, from + piece.count, piece.data.as<float>());
    }
  };
  Arena unused("unused");  // needed only for tensors in files
  // Other ranks may still be reading this rank's initial weights.
  engine.parameters().for_each_group([](int, zero::ParameterGroup& group) { group.wait(); });
  load_pieces(engine.parameters(), engine.plan().config.optimizer,
              {.read = fill, .read_on_host = fill, .kernels = engine.kernels(), .buffers = unused, .staging = {}});
  engine.parameters().publish(true);
}

NamedValues weights_of(Engine& engine) {
  NamedValues weights;
  for (size_t layer = 0; layer < engine.model().layers.size(); ++layer)
    for (const ParameterSpec& parameter : engine.model().layers[layer]->parameters()) {
      if (!parameter.tied_to.empty()) continue;
      const std::string name = engine.model().names[layer] + "." + parameter.name;
      const std::vector<float> values = engine.weight(name);
      weights[name] = {values.begin(), values.end()};
    }
  return weights;
}

const std::vector<GoldenRun>& golden_runs() {
  static const std::vector<GoldenRun> runs = [] {
    std::vector<GoldenRun> all;
    for (const auto& json : shared().runs.at("runs")) all.push_back(read_run(json));
    return all;
  }();
  return runs;
}

const std::vector<GoldenSchedule>& golden_schedules() {
  static const std::vector<GoldenSchedule> schedules = [] {
    std::vector<GoldenSchedule> all;
    for (const auto& json : shared().runs.at("schedules"))
      all.push_back({json.at("name"), json.at("config").dump(), json.at("lr").get<std::vector<double>>()});
    return all;
  }();
  return schedules;
}

TrainingTrace train(const GoldenRun& run, const TrainingPlace& place) {
  TrainingTrace trace;
  comm::run_threads(place.ranks, [&](comm::World& world) {
    TrainingTrace own = train_on_rank(run, place, world);
    if (world.rank() == 0) trace = std::move(own);
  });
  return trace;
}

TraceDifference difference(const GoldenRun& golden, const TrainingTrace& trace) {
  TraceDifference most;
  for (size_t step = 0; step < golden.trace.loss.size(); ++step) {
    most.loss = larger(most.loss, relative(trace.loss.at(step), golden.trace.loss[step]));
    if (!golden.trace.skipped[step])
      most.grad_norm = larger(most.grad_norm, relative(trace.grad_norm.at(step), golden.trace.grad_norm[step]));
  }
  most.evaluation = relative(trace.evaluation, golden.trace.evaluation);
  if (!golden.trace.weights.empty())
    most.weights = difference_of_weights(golden.trace.weights, trace.weights, of_prefix(shared().models, golden.model));
  return most;
}

}  // namespace trivet::test
