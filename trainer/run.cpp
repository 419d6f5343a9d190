#include "trainer/run.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "data/counted_targets.h"
#include "engine/config/vocabulary_rows.h"
#include "model/family.h"
#include "trainer/admission.h"
#include "trainer/epochs.h"
#include "trainer/files_of_run.h"
#include "trainer/intake.h"
#include "trainer/open_data.h"

namespace trivet::trainer {
namespace {

std::unique_ptr<data::TrainingData> open_same_data(const Config& config, comm::World& world) {
  if (config.data.grows) return open_growing_data(config, world);
  const bool images = model::family_of(config.model.type).reads_images;
  auto data = images ? trainer::open_image_data(config, model::build(config.model).sample.targets.elements())
                     : trainer::open_text_data(config);
  check_same_files(config, *data, world);  // before ranks rely on equal sizes
  data::refuse_without_targets(*data->train(), "training");
  return data;
}

void check_classes(const Config& config, const model::Model& model, const data::SampleSource& train) {
  if (train.spec().spelled != model.sample.spelled)
    throw ConfigError(
        fmt::format("{}: model.network: {} has {}; {}", config.source, config.data.train_name(),
                    train.spec().spelled ? "texts, but the list of layers ends with a choice of one class"
                                         : "classes, but the list of layers ends with \"ctc\", which reads texts",
                    train.spec().spelled ? "end with \"ctc LENGTH\"" : "name a folder with a file labels.txt (docs/data.md)"));
  if (train.spec().classes <= model.sample.classes) return;
  if (train.spec().spelled)
    throw ConfigError(fmt::format(
        "{}: model.network: \"ctc\" gets {} classes, but {} has {} characters and needs one more for the blank; use {}",
        config.source, model.sample.classes, config.data.train_name(), train.spec().classes - 1, train.spec().classes));
  throw ConfigError(fmt::format("{}: model.network: the last layer gives {} numbers, but {} has {} classes; use as many",
                                config.source, model.sample.classes, config.data.train_name(), train.spec().classes));
}

// Batch norm would take empty rows for images.
void refuse_empty_rows_in_statistics(const Config& config, const model::Model& model) {
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (const ParameterSpec& parameter : model.layers[layer]->parameters())
      if (parameter.update.kind == ParameterUpdate::Kind::RunningAverage)
        throw ConfigError(fmt::format(
            "{}: data.sampler: with \"pytorch\" the last step of an epoch has rows without a sample here, and layer {} would "
            "count them in its statistics; set dataloader_drop_last to true, with a gradient_accumulation_steps that divides "
            "the microbatches of a rank in an epoch, such as 1, or use \"trivet\"",
            config.source, model.names[layer]));
}

Engine make_engine(const Config& config, const data::TrainingData& data, const data::Admissions* admissions, comm::World& world,
                   const TrainOptions& options) {
  model::Model model = model::build(model::with_vocabulary(config.model, vocabulary_rows(config, data.vocabulary_size())));
  const auto train = data.train();
  if (model::family_of(config.model.type).reads_images) check_classes(config, model, *train);
  Plan plan = make_plan(config, model, world.size());
  const auto sampler = make_sampler(config, *train, plan, admissions);
  if (sampler->has_empty_rows()) refuse_empty_rows_in_statistics(config, model);
  set_steps_of_schedule(plan.config, *sampler);
  return Engine(std::move(plan), std::move(model), world, {.threads = options.threads, .local_rank = options.local_rank});
}

// A shell that completes a name may end it with a slash.
bool is_same_name(const std::string& one, const std::string& other) {
  const auto normal = [](const std::string& name) { return (std::filesystem::path(name) / "").lexically_normal(); };
  return normal(one) == normal(other);
}

}  // namespace

Run::Run(const Config& run_config, comm::World& ranks, const TrainOptions& train_options)
    : config(run_config),
      world(ranks),
      options(train_options),
      data(open_same_data(config, world)),
      admissions(trainer::admit(config, *data->train())),
      references(*data),
      engine(make_engine(config, *data, admissions.get(), world, options)),
      batches(config, references.train(), make_sampler(config, *references.train(), engine.plan(), admissions.get()),
              engine.plan(), world.rank()),
      intake(*this),
      evaluations(config.training, config.checkpoint.keep_best),
      log(world.rank()) {
  engine.set_microbatch_source([this](int64_t step, int64_t number) { return batches.microbatch(step, number); });
}

bool Run::resumes_own() const {
  const std::string& from = options.resume_directory;
  return options.resume && (from.empty() || is_same_name(from, config.checkpoint.directory));
}

}  // namespace trivet::trainer
