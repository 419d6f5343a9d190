#include "engine/trainer/run.h"

#include "engine/data/token_source.h"
#include "engine/same_on_all_ranks.h"
#include "engine/trainer/epochs.h"

namespace trivet::trainer {
namespace {

data::Dataset open_same_dataset(const Config& config, comm::World& world) {
  data::Dataset dataset = data::open_dataset(data::data_options(config));
  check_same_files(config, dataset, world);  // before ranks rely on equal sizes
  return dataset;
}

Engine make_engine(const Config& config, const data::Dataset& dataset, comm::World& world, const TrainOptions& options) {
  model::Model model = model::build(model::with_vocabulary(config.model, dataset.vocabulary_size));
  Plan plan = make_plan(config, model, world.size());
  const int64_t samples = data::TokenSource(dataset.train, config.model.sequence_length).samples();
  set_steps_of_schedule(plan.config, *make_sampler(config, samples, plan));
  return Engine(std::move(plan), std::move(model), world, {.threads = options.threads, .local_rank = options.local_rank});
}

}  // namespace

Run::Run(const Config& run_config, comm::World& ranks, const TrainOptions& train_options)
    : config(run_config),
      world(ranks),
      options(train_options),
      dataset(open_same_dataset(config, world)),
      engine(make_engine(config, dataset, world, options)),
      batches(config, dataset, engine.plan(), world.rank()),
      evaluations(config.training, config.checkpoint.keep_best),
      log(world.rank()) {
  engine.set_microbatch_source([this](int64_t step, int64_t number) { return batches.microbatch(step, number); });
}

}  // namespace trivet::trainer
