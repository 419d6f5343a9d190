#include "tests/equivalence/tiny_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/world.h"
#include "core/random.h"
#include "engine/config/curriculum.h"
#include "engine/engine.h"
#include "trainer/predictions.h"

namespace trivet::test {
namespace {

constexpr int64_t kVocabulary = 61, kSequence = 16;  // of text
constexpr int64_t kClasses = 5;                      // of images

// A sample depends only on its number in the run, as with real data.
struct MadeUpBatch {
  std::vector<int32_t> tokens, targets, documents, positions;
  std::vector<float> images;
  std::vector<double> reference;  // of pairs
  Microbatch view;

  // Rows are numbered, of which pairs have two.
  MadeUpBatch(const SampleSpec& spec, int64_t step, int64_t first_pair_or_sample, int64_t samples) {
    const int64_t first_sample = first_pair_or_sample * spec.rows();
    for (int64_t s = 0; s < samples * spec.rows(); ++s)
      if (is_float(spec.input_dtype))
        add_image(spec, step, first_sample + s);
      else
        add_text(spec.input[0], step, first_sample + s);
    void* const input = is_float(spec.input_dtype) ? static_cast<void*>(images.data()) : tokens.data();
    view = {{input, spec.input_dtype, spec.inputs_of(samples)},
            {targets.data(), DType::Int32, spec.targets_of(samples)},
            first_sample};
    const int64_t answers = spec.reference_of(samples).elements(),
                  first_answer = spec.reference_of(first_pair_or_sample).elements();
    for (int64_t answer = 0; answer < answers; ++answer)
      reference.push_back(
          -60 - 12 * unit_float(philox(10, static_cast<uint64_t>(step), static_cast<uint64_t>(first_answer + answer))[0]));
    if (spec.documents) add_documents(spec, step, first_sample, samples);
    if (spec.pairs) view.reference = {reference.data(), DType::Float64, spec.reference_of(samples)};
  }
  void add_text(int64_t length, int64_t step, int64_t sample) {
    for (int64_t t = 0; t < length; ++t) {
      tokens.push_back(token(step, sample, t));
      targets.push_back(token(step, sample, t + 1));
    }
  }
  // Two documents in every row, or sometimes one if rows are no pairs, and in most rows padding.
  void add_documents(const SampleSpec& spec, int64_t step, int64_t first_sample, int64_t samples) {
    const auto length = static_cast<int32_t>(spec.input[0]);
    for (int64_t s = 0; s < samples * spec.rows(); ++s) {
      const PhiloxBlock draw = philox(12, static_cast<uint64_t>(step), static_cast<uint64_t>(first_sample + s));
      const int32_t shortest = spec.pairs ? 1 : 0;
      const int32_t second = shortest + static_cast<int32_t>(draw[0] % static_cast<uint32_t>(length - shortest));
      const int32_t end = second + 1 + static_cast<int32_t>(draw[1] % static_cast<uint32_t>(length - second));
      for (int32_t t = 0; t < length; ++t) {
        documents.push_back(t >= end ? length : t >= second ? second : 0);
        positions.push_back(std::max(t - documents.back(), 0));
        if (t >= end) targets[s * length + t] = -1;
      }
    }
    view.documents = {documents.data(), DType::Int32, spec.targets_of(samples)};
    view.positions = {positions.data(), DType::Int32, spec.targets_of(samples)};
  }
  void add_image(const SampleSpec& spec, int64_t step, int64_t sample) {
    const std::vector<float> image = tiny_image(step, sample, spec.input.elements());
    images.insert(images.end(), image.begin(), image.end());
    const auto brightest = std::max_element(image.begin(), image.end()) - image.begin();
    targets.push_back(static_cast<int32_t>(brightest * spec.classes / spec.input.elements()));
  }
  static int32_t token(int64_t step, int64_t sample, int64_t position) {
    // Predictable from the token before, so that there is something to learn.
    const auto start = philox(7, static_cast<uint64_t>(step), static_cast<uint64_t>(sample))[0];
    return static_cast<int32_t>((start + static_cast<uint32_t>(position) * 5u) % kVocabulary);
  }
};

std::vector<MadeUpBatch> batches_of(const SampleSpec& spec, const Plan& plan, int rank, int64_t step) {
  std::vector<MadeUpBatch> batches;
  const int64_t micro = plan.batch.micro_batch_size;
  for (int64_t m = 0; m < plan.batch.gradient_accumulation_steps; ++m)
    batches.emplace_back(spec, step, (m * plan.mesh.size(Axis::Data) + plan.mesh.coordinate_of(rank, Axis::Data)) * micro,
                         micro);
  return batches;
}

std::vector<Microbatch> views_of(const std::vector<MadeUpBatch>& batches) {
  std::vector<Microbatch> views;
  for (const auto& batch : batches) views.push_back(batch.view);
  return views;
}

// A layer whose parameters are not trained.
class Frozen final : public Layer {
 public:
  explicit Frozen(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {
    for (ParameterSpec spec : layer_->parameters()) {
      spec.trainable = false;
      specs_.push_back(std::move(spec));
    }
  }
  std::span<const ParameterSpec> parameters() const override { return specs_; }
  Shape output_shape(const Shape& input) const override { return layer_->output_shape(input); }
  LayerRole role() const override { return layer_->role(); }
  bool allows_sequence_parallelism() const override { return layer_->allows_sequence_parallelism(); }
  void forward(Context& c, Weights weights, ConstTensorView x, TensorView y, Saved& saved) const override {
    layer_->forward(c, weights, x, y, saved);
  }
  void backward_input(Context& c, Weights weights, ConstTensorView dy, TensorView dx, Saved& saved) const override {
    layer_->backward_input(c, weights, dy, dx, saved);
  }
  void backward_weight(Context& c, Gradients gradients, const Saved& saved) const override {
    expect_absent(gradients);
    layer_->backward_weight(c, gradients, saved);
  }
  void backward(Context& c, Weights weights, Gradients gradients, ConstTensorView dy, TensorView dx,
                Saved& saved) const override {
    expect_absent(gradients);
    layer_->backward(c, weights, gradients, dy, dx, saved);
  }

 private:
  static void expect_absent(Gradients gradients) {
    for (const Gradient& gradient : gradients) EXPECT_TRUE(gradient.view.absent());
  }

  std::unique_ptr<Layer> layer_;
  std::vector<ParameterSpec> specs_;
};

model::Model build_model(const TinyRun& run) {
  model::Model model = model::build(model::with_vocabulary(run.config.model, kVocabulary));
  if (run.change) run.change(model);
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (std::count(run.frozen.begin(), run.frozen.end(), model.names[i]))
      model.layers[i] = std::make_unique<Frozen>(std::move(model.layers[i]));
  return model;
}

// ThreadSanitizer does not see how OpenMP's threads synchronize: libgomp is not compiled with it.
#ifdef __SANITIZE_THREAD__
constexpr bool kOneKernelThread = true;
#else
constexpr bool kOneKernelThread = false;
#endif

// What the ranks have kept of an evaluation.
struct KeptPredictions {
  std::mutex mutex;
  std::vector<Prediction> list;
};

void run_rank(const TinyRun& run, comm::World& real_world, Trace& trace, KeptPredictions& kept) {
  const std::unique_ptr<comm::World> wrapped = run.wrap ? run.wrap(real_world) : nullptr;
  comm::World& world = wrapped ? *wrapped : real_world;
  model::Model model = build_model(run);
  Plan plan = make_plan(run.config, model, world.size());
  Engine engine(
      std::move(plan), std::move(model), world,
      {.threads = kOneKernelThread ? 1 : run.threads, .observer = run.observer ? run.observer(world.rank()) : nullptr});
  std::optional<MadeUpBatch> other;
  engine.set_microbatch_source([&](int64_t step, int64_t number) {
    const int64_t micro = engine.plan().batch.micro_batch_size;
    return other.emplace(sample_of_step(run.config.curriculum, engine.model().sample, step), step, number * micro, micro).view;
  });
  if (!run.load_from.empty()) {
    EXPECT_TRUE(engine.load(run.load_from));
  }
  for (int64_t step = engine.progress().steps; step < run.steps; ++step) {
    const SampleSpec sample = sample_of_step(run.config.curriculum, engine.model().sample, step);
    const auto batches = batches_of(sample, engine.plan(), world.rank(), step);
    if (run.before_step) run.before_step(engine, world.rank(), step);
    const StepResult result = engine.train_batch(views_of(batches));
    if (world.rank() != 0) continue;
    trace.loss_bits.push_back(std::bit_cast<uint32_t>(static_cast<float>(result.loss)));
    trace.grad_norms.push_back(result.grad_norm);
    trace.experts = result.experts;
  }
  if (!run.save_to.empty()) engine.save(run.save_to);
  const auto batches = batches_of(engine.model().sample, engine.plan(), world.rank(), 1000);
  const auto views = views_of(batches);
  Predictions predictions(engine.model().sample, engine.plan().batch.train_batch_size);
  const StepResult evaluation = engine.evaluate(
      static_cast<int64_t>(views.size()), [&](int64_t i) { return views[static_cast<size_t>(i)]; }, &predictions);
  {
    const std::lock_guard lock(kept.mutex);
    kept.list.insert(kept.list.end(), predictions.kept().begin(), predictions.kept().end());
  }
  if (world.rank() == 0) {
    trace.evaluation = evaluation.loss, trace.correct = evaluation.correct;
    trace.rewards = {evaluation.chosen_reward, evaluation.rejected_reward};
  }
  for (size_t layer = 0; layer < engine.model().layers.size(); ++layer)
    for (const ParameterSpec& parameter : engine.model().layers[layer]->parameters()) {
      if (!parameter.tied_to.empty()) continue;
      const std::string name = engine.model().names[layer] + "." + parameter.name;
      auto values = engine.weight(name);
      if (world.rank() == 0) trace.weights[name] = std::move(values);
    }
}

void set_text_model(Config& config, model::Type type) {
  config.model.layers = 2;
  config.model.hidden_size = 32;
  config.model.heads = 4;
  config.model.key_value_heads = type == model::Type::Llama ? 2 : 0;
  config.model.sequence_length = kSequence;
  config.model.tied_embedding = type == model::Type::Gpt;
  config.model.dropout = 0.1;
}

void set_image_model(Config& config) {
  config.model.input = {2, 8, 9};
  config.model.network = {"conv 4 padding 1", "batch_norm", "relu",           "max_pool 2",  "conv 6 no_bias padding 1",
                          "group_norm 2",     "gelu",       "average_pool 2", "dropout 0.2", "flatten",
                          "dense 8",          "batch_norm", "relu",           "dense 5"};
}

}  // namespace

Config tiny_config(model::Type type) {
  constexpr int64_t kMicrobatches = 12;
  const bool images = type == model::Type::Sequential;
  Config config;
  config.source = "tiny";
  config.model.type = type;
  images ? set_image_model(config) : set_text_model(config, type);
  config.batch.micro_batch_size = images ? 3 : 1;
  config.batch.train_batch_size = kMicrobatches * config.batch.micro_batch_size;
  config.optimizer.lr = 1e-2;
  config.optimizer.weight_decay = 0.1;
  config.zero.stage3_param_persistence_threshold = 40;
  return config;
}

std::vector<float> tiny_image(int64_t step, int64_t sample, int64_t elements) {
  std::vector<float> image;
  const int64_t bright = philox(8, static_cast<uint64_t>(step), static_cast<uint64_t>(sample))[0] % kClasses;
  for (int64_t e = 0; e < elements; ++e)
    image.push_back(unit_float(philox(9, static_cast<uint64_t>(step), static_cast<uint64_t>(sample * elements + e))[0]) +
                    (e * kClasses / elements == bright ? 1.0f : 0.0f));
  return image;
}

Trace run(const TinyRun& run) {
  Trace trace;
  KeptPredictions kept;
  comm::run_threads(run.ranks, [&](comm::World& world) { run_rank(run, world, trace, kept); });
  trace.predictions = to_text(shown_first(std::move(kept.list)));
  return trace;
}

std::string difference(const Trace& a, const Trace& b) {
  for (size_t i = 0; i < a.loss_bits.size(); ++i)
    if (i >= b.loss_bits.size() || a.loss_bits[i] != b.loss_bits[i])
      return fmt::format("loss of step {}: {} and {}", i, std::bit_cast<float>(a.loss_bits[i]),
                         i < b.loss_bits.size() ? std::bit_cast<float>(b.loss_bits[i]) : 0.0f);
  for (size_t i = 0; i < a.grad_norms.size(); ++i)
    if (std::bit_cast<uint64_t>(a.grad_norms[i]) != std::bit_cast<uint64_t>(b.grad_norms[i]))  // NaN where a step is skipped
      return fmt::format("norm of step {}: {} and {}", i, a.grad_norms[i], b.grad_norms[i]);
  if (a.evaluation != b.evaluation) return fmt::format("evaluation: {} and {}", a.evaluation, b.evaluation);
  if (a.rewards != b.rewards)
    return fmt::format("rewards in the evaluation: {} and {}", fmt::join(a.rewards, " / "), fmt::join(b.rewards, " / "));
  if (a.correct != b.correct) return fmt::format("correct in the evaluation: {} and {}", a.correct, b.correct);
  if (a.experts != b.experts) return "the tokens of experts";
  if (a.predictions != b.predictions) return fmt::format("predictions:\n{}and\n{}", a.predictions, b.predictions);
  for (const auto& [name, values] : a.weights) {
    const auto other = b.weights.find(name);
    if (other == b.weights.end() || other->second.size() != values.size()) return name + " is missing";
    for (size_t i = 0; i < values.size(); ++i)
      if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(other->second[i]))
        return fmt::format("{}[{}]: {} and {}", name, i, values[i], other->second[i]);
  }
  return "";
}

std::string difference_beyond_rounding(const Trace& a, const Trace& b) {
  constexpr double kRounding = 0x1p-23;
  const auto loss = [](uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); };
  std::string found;
  const auto compare = [&](const char* what, double of_a, double of_b, double tolerance) {
    const bool close = std::abs(of_a - of_b) <= tolerance * std::abs(of_a);
    if (found.empty() && !close) found = fmt::format("{}: {} and {}", what, of_a, of_b);
  };
  compare("first loss", loss(a.loss_bits.front()), loss(b.loss_bits.front()), 8 * kRounding);
  compare("first norm", a.grad_norms.front(), b.grad_norms.front(), 16 * kRounding);
  compare("last loss", loss(a.loss_bits.back()), loss(b.loss_bits.back()), 3e-4);
  return found;
}

}  // namespace trivet::test
