#include "cli/config_model.h"

#include "data/dataset.h"
#include "engine/config/vocabulary_rows.h"
#include "engine/plan.h"
#include "model/family.h"
#include "trainer/open_data.h"

namespace trivet::cli {
namespace {

int64_t vocabulary_size(const Config& config) {
  if (config.vocabulary.kind == VocabularyKind::Size) return config.model.vocabulary_size;
  if (config.vocabulary.kind == VocabularyKind::Bytes) return 256;
  return data::open_sources(trainer::data_options(config))[0].vocabulary_size;
}

}  // namespace

model::Model model_of(const Config& config) {
  if (model::family_of(config.model.type).reads_images) return model::build(config.model);
  return model::build(model::with_vocabulary(config.model, vocabulary_rows(config, vocabulary_size(config))));
}

}  // namespace trivet::cli
