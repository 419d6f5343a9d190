// Embeds the engine in your own program: config, model, plan, training loop, checkpoint.
//
//   example_01_train_gpt                           trains on a generated text, with two ranks as threads
//   example_01_train_gpt CONFIG.json [TEXT]        runs the config, as one rank of the job that the environment describes
//   trivet launch --num_gpus 2 example_01_train_gpt configs/gpt_char.json input.txt
//
// It exits with code 1 unless the loss falls and the saved checkpoint loads with the same loss. `trivet train` does the same
// and adds resume, evaluation, a progress display and saving while training continues (trainer/trainer.cpp).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "comm/world.h"
#include "core/error.h"
#include "core/random.h"
#include "data/dataset.h"
#include "data/microbatch_loader.h"
#include "data/token_source.h"
#include "engine/config/load.h"
#include "engine/engine.h"
#include "trainer/open_data.h"

namespace {

using namespace trivet;

// Any key of docs/config.md can be used here; load_config reads a file.
constexpr const char* kSmallRun = R"({
  "model": {"type": "llama", "layers": 2, "hidden_size": 64, "heads": 4, "key_value_heads": 2, "sequence_length": 32,
            "vocabulary": "characters"},
  "training": {"steps": 60, "seed": 1234},
  "train_batch_size": 16, "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.005, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "zero_optimization": {"stage": 2}
})";

// Sentences of five words, in which the first letters of a word determine the rest.
void write_small_text(const std::string& path) {
  constexpr const char* kWords[] = {"paper", "river", "candle", "window", "garden", "yellow", "thunder", "morning"};
  std::ofstream file(path);
  for (uint64_t i = 0; i < 2000; ++i) file << kWords[philox(1, i, 0)[0] % 8] << (i % 5 == 4 ? ".\n" : " ");
}

// Created once per process; the ranks that run as its threads share it.
struct Job {
  Config config;
  data::Dataset dataset;
};

// The plan holds everything that is known before the first step. When it is printed, nothing has been allocated yet.
Engine make_engine(const Job& job, comm::World& world, bool print_plan) {
  model::Model model = model::build(model::with_vocabulary(job.config.model, job.dataset.vocabulary_size));
  Plan plan = make_plan(job.config, model, world.size());
  if (print_plan && world.rank() == 0) std::printf("%s\n", to_text(plan).c_str());
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return Engine(std::move(plan), std::move(model), world, {.threads = std::max(1, cores / world.size())});
}

// Gives this rank its part of each step's data. The data of a step depend on the seed and the step, not on the number of ranks.
class Loader {
 public:
  Loader(const Job& job, const Engine& engine, int rank)
      : source_(std::make_shared<data::TokenSource>(job.dataset.train, job.config.model.sequence_length)),
        loader_(source_, {source_->samples(), static_cast<uint64_t>(job.config.training.seed), job.config.data.shuffle},
                engine.plan().batch_layout(rank)) {}

  // Valid until the next call.
  std::span<const Microbatch> of_step(int64_t step) {
    batches_.resize(static_cast<size_t>(loader_.layout().accumulation));
    views_.clear();
    for (size_t m = 0; m < batches_.size(); ++m) {
      loader_.fill(step, static_cast<int64_t>(m), batches_[m]);
      views_.push_back(batches_[m].view);
    }
    return views_;
  }

 private:
  std::shared_ptr<const data::SampleSource> source_;
  data::MicrobatchLoader loader_;
  std::vector<data::HostMicrobatch> batches_;
  std::vector<Microbatch> views_;
};

struct Losses {
  double first = 0, last = 0;  // in training
  double saved = 0;            // on a batch after training
};

Losses train(const Job& job, comm::World& world, const std::string& directory) {
  Engine engine = make_engine(job, world, true);
  Loader loader(job, engine, world.rank());
  Losses losses;
  const int64_t steps = job.config.training.steps;
  for (int64_t step = 0; step < steps; ++step) {
    // Alternatively, call forward_backward(...) and step() separately.
    const StepResult result = engine.train_batch(loader.of_step(step));
    if (step == 0) losses.first = result.loss;
    losses.last = result.loss;
    if (world.rank() == 0 && (step % 20 == 0 || step + 1 == steps))
      std::printf("step %3lld  loss %.4f  gradient norm %.3f\n", static_cast<long long>(step), result.loss, result.grad_norm);
  }
  losses.saved = engine.evaluate(loader.of_step(steps)).loss;
  if (!directory.empty()) engine.save(directory);
  return losses;
}

// A new engine has initial weights until it loads. A checkpoint can be loaded with any number of ranks and at any ZeRO stage.
double evaluate_checkpoint(const Job& job, comm::World& world, const std::string& directory) {
  Engine engine = make_engine(job, world, false);
  if (!engine.load(directory)) throw std::runtime_error(directory + ": holds no checkpoint");
  return engine.evaluate(Loader(job, engine, world.rank()).of_step(job.config.training.steps)).loss;
}

// Returns false if training did not reduce the loss or if the loaded checkpoint gives a different loss.
bool run(const Job& job, comm::World& world, const std::string& directory) {
  const Losses losses = train(job, world, directory);
  bool good = losses.last < losses.first;
  if (!directory.empty()) {
    const double loaded = evaluate_checkpoint(job, world, directory);
    if (world.rank() == 0) std::printf("saved with loss %.6f, loaded with loss %.6f\n", losses.saved, loaded);
    good = good && loaded == losses.saved;
  }
  return good;
}

// Runs the ranks as threads of this process, which is handy for development and tests.
bool run_small() {
  const std::string folder = (std::filesystem::temp_directory_path() / "trivet_example_XXXXXX").string();
  std::string made = folder;
  if (!mkdtemp(made.data())) throw std::runtime_error(folder + ": cannot be created");
  const std::string text = made + "/words.txt";
  write_small_text(text);
  Job job{.config = parse_config(kSmallRun, "small run", {"data.train=" + text}), .dataset = {}};
  job.dataset = data::open_dataset(trainer::data_options(job.config));
  bool good = false;
  comm::run_threads(2, [&](comm::World& world) {
    const bool mine = run(job, world, made + "/checkpoints");
    if (world.rank() == 0) good = mine;
  });
  std::filesystem::remove_all(made);
  return good;
}

// Runs one rank per process; it is the only rank if no launcher has set the environment (docs/environment.md).
bool run_as_rank(const std::string& config, const std::vector<std::string>& overrides) {
  Job job{.config = load_config(config, overrides), .dataset = {}};
  job.dataset = data::open_dataset(trainer::data_options(job.config));
  const auto world = comm::connect(comm::place_from_environment(comm::current_environment()));
  const bool good = run(job, *world, job.config.checkpoint.directory);
  world->close();
  return good;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> overrides;
  if (argc > 2) overrides.push_back("data.train=" + std::string(argv[2]));
  const bool good = argc > 1 ? run_as_rank(argv[1], overrides) : run_small();
  return good ? 0 : 1;
} catch (const trivet::Error& error) {  // errors that a user can cause: the message says what to do
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
}
