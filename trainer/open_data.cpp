#include "trainer/open_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/image_data.h"
#include "data/image_source.h"
#include "data/images.h"
#include "engine/config/load.h"

namespace trivet::trainer {
namespace {

[[noreturn]] void refuse_key(const Config& config, const std::string& key, const std::string& message) {
  throw DataError(ExitCode::Usage, (config.source.empty() ? "" : config.source + ": ") + key + ": " + message);
}

data::Normalization normalization_of(const Config& config, int64_t channels) {
  const auto check = [&](const char* key, const std::vector<double>& values) {
    if (values.size() != 1 && static_cast<int64_t>(values.size()) != channels)
      refuse_key(config, key,
                 fmt::format("{} numbers are given, but images have {} channels; give one number, or one for each channel",
                             values.size(), channels));
  };
  check("data.mean", config.data.mean);
  check("data.std", config.data.deviation);
  return {config.data.mean, config.data.deviation};
}

void check_shape(const Config& config, const std::string& path, const data::Images& images) {
  const std::vector<int64_t> shape{images.channels, images.rows, images.cols};
  if (shape == config.model.input) return;
  refuse_key(config, "model.input",
             fmt::format("[{}], but the images of {} are [{}]; use that", fmt::join(config.model.input, ", "), path,
                         fmt::join(shape, ", ")));
}

// The numbers of the images of a set, without or with a share that is held out. Its images are spread evenly over the set,
// which may be sorted by class.
struct Division {
  std::vector<int64_t> training, held_out;

  Division(int64_t images, double held_out_fraction) {
    const int64_t held = images - data::training_tokens(images, held_out_fraction);
    for (int64_t image = 0; image < images; ++image) {
      const bool is_held = (image + 1) * held / images > image * held / images;
      (is_held ? held_out : training).push_back(image);
    }
  }
};

void check_places(const Config& config, const std::string& path, const data::Images& images, int64_t places) {
  if (images.places > places)
    refuse_key(config, "model.network",
               fmt::format("{} has a text of {} characters, but the list of layers reads at most {}; end with \"ctc {}\"", path,
                           images.places, places, images.places));
}

// The images of config.data.validation, or those that come with the training images.
std::optional<data::Images> validation_images(const Config& config, int64_t places, data::OpenedImages& opened) {
  const DataConfig& given = config.data;
  std::optional<data::Images> images =
      given.validation.empty()
          ? std::move(opened.test)
          : data::open_images(given.validation, given.format, opened.class_names, opened.train.characters).train;
  if (!images) return {};
  const std::string& path = given.validation.empty() ? given.train : given.validation;
  check_shape(config, path, *images);
  if (images->spelled() != opened.train.spelled())
    refuse_key(config, "data.validation",
               fmt::format("{} has {}, but the training images have {}; use images of the same kind", path,
                           images->spelled() ? "texts" : "classes", images->spelled() ? "classes" : "texts"));
  check_places(config, path, *images, places);
  if (images->class_count() > opened.train.class_count())
    refuse_key(config, "data.validation",
               fmt::format("{} has images of class {}, but the training images have classes up to {}", path,
                           images->class_count() - 1, opened.train.class_count() - 1));
  return images;
}

// Notes which of the test images, data.validation and data.validation_fraction is not used, if there are several.
std::vector<std::string> notes_on_validation(const Config& config, const data::OpenedImages& opened) {
  std::error_code absent;
  if (!config.data.validation.empty() && std::filesystem::equivalent(config.data.validation, config.data.train, absent))
    return {"data.validation: its images are those of data.train, so the validation loss is that of what was learned by heart"};
  if (!opened.test) return {};
  const std::string there = fmt::format("{}: there are {} test images", printable(config.data.train), opened.test->count());
  if (!config.data.validation.empty()) return {there + ", which are not used: data.validation names others"};
  if (is_given(config, "data.validation_fraction"))
    return {there + ", which are for validation; data.validation_fraction has no effect"};
  return {};
}

}  // namespace

data::DataOptions data_options(const Config& config) {
  return {.data = config.data,
          .vocabulary = config.vocabulary.kind,
          .tokenizer_file = config.vocabulary.tokenizer_file,
          .vocabulary_size = config.model.vocabulary_size,
          .pairs = config.model.objective == model::Objective::Dpo,
          .needs_prompts = config.model.objective == model::Objective::Sft,
          .source = config.source};
}

std::unique_ptr<data::TrainingData> open_text_data(const Config& config) {
  std::vector<std::unique_ptr<data::TrainingData>> parts;
  for (data::Dataset& dataset : data::open_sources(data_options(config)))
    parts.push_back(data::text_data(std::move(dataset), config.model.sequence_length, config.data));
  if (config.data.sources.empty()) return std::move(parts[0]);
  return data::mixed_data(std::move(parts), config.data.sources);
}

std::unique_ptr<data::TrainingData> open_image_data(const Config& config, int64_t places) {
  const DataConfig& given = config.data;
  if (given.train.empty()) refuse_key(config, "data.train", "is missing; name a folder or file of images (docs/data.md)");
  data::OpenedImages opened = data::open_images(given.train, given.format);
  check_shape(config, given.train, opened.train);
  check_places(config, given.train, opened.train, places);
  const data::Normalization normalization = normalization_of(config, opened.train.channels);
  const data::Augmentation augmentation{static_cast<uint64_t>(config.training.seed), given.crop_padding, given.flip};
  std::vector<std::string> notes = notes_on_validation(config, opened);
  std::optional<data::Images> validation = validation_images(config, places, opened);
  const auto train = std::make_shared<const data::Images>(std::move(opened.train));
  Division division(train->count(), validation ? 0 : given.validation_fraction);
  if (division.training.empty())
    refuse_key(config, "data.validation_fraction", "leaves no image for training; use a smaller one");
  const auto training =
      std::make_shared<data::ImageSource>(train, std::move(division.training), normalization, augmentation, places);
  std::shared_ptr<const data::ImageSource> held_out;
  if (validation) {
    const auto images = std::make_shared<const data::Images>(std::move(*validation));
    held_out = std::make_shared<data::ImageSource>(images, Division(images->count(), 0).training, normalization,
                                                   data::Augmentation{}, places);
  } else if (!division.held_out.empty()) {
    held_out =
        std::make_shared<data::ImageSource>(train, std::move(division.held_out), normalization, data::Augmentation{}, places);
  }
  return data::image_data(training, held_out, std::move(opened.class_names), std::move(notes));
}

}  // namespace trivet::trainer
