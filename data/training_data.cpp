#include "data/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/printable.h"
#include "data/counted_targets.h"
#include "data/data_error.h"
#include "data/document_source.h"
#include "data/image_source.h"
#include "data/pair_source.h"
#include "data/token_source.h"
#include "engine/config/config.h"
#include "engine/config/load.h"

namespace trivet::data {
namespace {

// Without a tokenizer, or if one of the tokens is unknown to it: the tokens' numbers.
std::string words_of(const Dataset& dataset, std::span<const int32_t> targets) {
  std::vector<int32_t> tokens(targets.begin(), targets.end());
  std::erase_if(tokens, [](int32_t token) { return token < 0; });
  const Tokenizer* tokenizer = dataset.tokenizer.get();
  const auto is_known = [&](int32_t token) { return token < tokenizer->vocabulary_size(); };
  if (tokenizer && std::ranges::all_of(tokens, is_known)) return tokenizer->decode(tokens);
  return fmt::format("{}", fmt::join(tokens, " "));
}

// Makes a source of the training data. What is wrong with them may be how much of them is held out.
template <typename Make>
auto naming_held_out(const Dataset& dataset, Make make) {
  try {
    return make();
  } catch (const DataError& error) {
    if (dataset.held_out_tokens == 0) throw;
    const std::string of_these =
        dataset.packing == Packing::Stream && dataset.held_out_tokens > 1 && dataset.held_out_tokens < dataset.train->tokens()
            ? fmt::format("; these need a model.sequence_length of at most {}", dataset.held_out_tokens - 1)
            : "";
    throw DataError(error.exit_code(),
                    fmt::format("{}. {} more tokens are held out for validation (data.validation_fraction){}", error.what(),
                                dataset.held_out_tokens, of_these));
  }
}

class TextData final : public TrainingData {
 public:
  TextData(Dataset dataset, int64_t sequence_length, const DataConfig& data)
      : dataset_(std::move(dataset)),
        sequence_length_(sequence_length),
        loss_on_(data.loss_on),
        only_evaluated_(data.only_evaluated) {
    if (dataset_.packing == Packing::Stream) return;
    const DocumentSource::Options options{sequence_length, dataset_.packing, data.loss_on};
    train_documents_ = naming_held_out(dataset_, [&] { return std::make_shared<DocumentSource>(dataset_.train, options); });
    if (dataset_.validation) validation_documents_ = std::make_shared<DocumentSource>(dataset_.validation, options);
  }

  std::shared_ptr<const SampleSource> train() const override {
    return naming_held_out(dataset_, [&] { return source(dataset_.train, train_documents_); });
  }
  std::shared_ptr<const SampleSource> validation() const override {
    return dataset_.validation ? source(dataset_.validation, validation_documents_) : nullptr;
  }
  std::string train_digest() const override { return train_documents_ ? train_documents_->digest() : dataset_.train->digest(); }
  std::string validation_digest() const override {
    if (validation_documents_) return validation_documents_->digest();
    return dataset_.validation ? dataset_.validation->digest() : "";
  }
  std::string sizes() const override {
    if (only_evaluated_) return train_documents_ ? in_samples("document") : fmt::format("{} tokens", dataset_.train->tokens());
    const std::string from = dataset_.validation_file.empty() ? "" : " of " + dataset_.validation_file;
    if (train_documents_)
      return fmt::format("{}, {} validation documents{}", in_samples("training document"),
                         validation_documents_ ? validation_documents_->documents() : 0, from);
    return fmt::format("{} training tokens, {} validation tokens{}", dataset_.train->tokens(),
                       dataset_.validation ? dataset_.validation->tokens() : 0, from);
  }
  std::vector<std::string> notes() const override { return dataset_.notes; }
  std::string in_words(std::span<const int32_t> targets) const override { return words_of(dataset_, targets); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return dataset_.tokenizer; }
  int64_t vocabulary_size() const override { return dataset_.vocabulary_size; }
  int64_t stream_tokens() const override { return train_documents_ ? 0 : dataset_.train->tokens(); }

 private:
  // "3 documents, 1 longer than a sample and cut, in 1 sample with 0.0 % padding"
  std::string in_samples(const char* document) const {
    const DocumentSource& all = *train_documents_;
    const std::string cut =
        all.cut_documents() == 0 ? "" : fmt::format(", {} longer than a sample and cut", all.cut_documents());
    return fmt::format("{} {}{}{}, in {} sample{} with {:.1f} % padding", all.documents(), document,
                       all.documents() == 1 ? "" : "s", cut, all.samples(), all.samples() == 1 ? "" : "s", 100 * all.padding());
  }
  std::shared_ptr<const SampleSource> source(const std::shared_ptr<TokenSequence>& tokens,
                                             const std::shared_ptr<const DocumentSource>& documents) const {
    if (documents) return documents;
    return std::make_shared<TokenSource>(tokens, sequence_length_, loss_on_);
  }

  Dataset dataset_;
  int64_t sequence_length_;
  LossOn loss_on_;
  bool only_evaluated_;
  std::shared_ptr<const DocumentSource> train_documents_, validation_documents_;  // null with packing "stream"
};

// Refuses pairs of which none teaches anything, and notes how many do not. An answer that is cut may be equal to the other.
std::shared_ptr<const PairSource> pairs_of(const std::shared_ptr<TokenSequence>& tokens, int64_t sequence_length,
                                           const std::string& of, std::vector<std::string>& notes) {
  if (!tokens) return nullptr;
  auto source = std::make_shared<PairSource>(tokens, sequence_length);
  const PairCounts counts = count_pairs(*tokens, sequence_length + 1);
  const std::string cut = source->cut_answers() == 0
                              ? ""
                              : fmt::format(", compared up to where model.sequence_length {} cuts them", sequence_length);
  if (counts.equal == counts.all) throw DataError(ExitCode::Usage, fmt::format("data: {}: {}{}", of, counts.in_words(), cut));
  if (counts.equal > 0) notes.push_back(fmt::format("{}: {}{}", of, counts.in_words(), cut));
  return source;
}

// Pairs of answers. A row has one of them, whatever data.packing says.
class PairData final : public TrainingData {
 public:
  PairData(Dataset dataset, int64_t sequence_length)
      : dataset_(std::move(dataset)),
        train_(pairs_of(dataset_.train, sequence_length, "training pairs", dataset_.notes)),
        validation_(pairs_of(dataset_.validation, sequence_length, "validation pairs", dataset_.notes)) {}

  std::shared_ptr<const SampleSource> train() const override { return train_; }
  std::shared_ptr<const SampleSource> validation() const override { return validation_; }
  std::string train_digest() const override { return train_->digest(); }
  std::string validation_digest() const override { return validation_ ? validation_->digest() : ""; }
  std::string sizes() const override {
    const int64_t cut = train_->cut_answers();
    return fmt::format("{} training pairs of answers{}, with {:.1f} % padding, {} validation pairs", train_->samples(),
                       cut == 0 ? "" : fmt::format(", {} longer than a row and cut", cut), 100 * train_->padding(),
                       validation_ ? validation_->samples() : 0);
  }
  std::vector<std::string> notes() const override { return dataset_.notes; }
  std::string in_words(std::span<const int32_t> targets) const override { return words_of(dataset_, targets); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return dataset_.tokenizer; }
  int64_t vocabulary_size() const override { return dataset_.vocabulary_size; }

 private:
  Dataset dataset_;
  std::shared_ptr<const PairSource> train_, validation_;
};

class ImageData final : public TrainingData {
 public:
  ImageData(std::shared_ptr<const ImageSource> train, std::shared_ptr<const ImageSource> validation,
            std::vector<std::string> class_names, std::vector<std::string> notes)
      : train_(std::move(train)),
        validation_(std::move(validation)),
        class_names_(std::move(class_names)),
        notes_(std::move(notes)) {}

  std::shared_ptr<const SampleSource> train() const override { return train_; }
  std::shared_ptr<const SampleSource> validation() const override { return validation_; }
  std::string train_digest() const override { return train_->digest(); }
  std::string validation_digest() const override { return validation_ ? validation_->digest() : ""; }
  std::string sizes() const override {
    const SampleSpec& spec = train_->spec();
    const std::string targets =
        spec.spelled ? fmt::format("{} characters", spec.classes - 1) : fmt::format("{} classes", spec.classes);
    return fmt::format("{} training images, {} validation images, {}", train_->samples(),
                       validation_ ? validation_->samples() : 0, targets);
  }
  // A class has a name if it is a folder.
  std::string in_words(std::span<const int32_t> targets) const override {
    const bool named = targets.size() == 1 && static_cast<size_t>(targets[0]) < class_names_.size();
    return named ? class_names_[static_cast<size_t>(targets[0])] : train_->in_words(targets);
  }
  std::vector<std::string> notes() const override { return notes_; }
  std::optional<Picture> validation_picture(int64_t sample) const override { return validation_->picture(sample); }

 private:
  std::shared_ptr<const ImageSource> train_, validation_;
  std::vector<std::string> class_names_, notes_;
};

[[noreturn]] void refuse_key(const Config& config, const std::string& key, const std::string& message) {
  throw DataError(ExitCode::Usage, (config.source.empty() ? "" : config.source + ": ") + key + ": " + message);
}

Normalization normalization_of(const Config& config, int64_t channels) {
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

void check_shape(const Config& config, const std::string& path, const Images& images) {
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
    const int64_t held = images - training_tokens(images, held_out_fraction);
    for (int64_t image = 0; image < images; ++image) {
      const bool is_held = (image + 1) * held / images > image * held / images;
      (is_held ? held_out : training).push_back(image);
    }
  }
};

void check_places(const Config& config, const std::string& path, const Images& images, int64_t places) {
  if (images.places > places)
    refuse_key(config, "model.network",
               fmt::format("{} has a text of {} characters, but the list of layers reads at most {}; end with \"ctc {}\"", path,
                           images.places, places, images.places));
}

// The images of config.data.validation, or those that come with the training images.
std::optional<Images> validation_images(const Config& config, int64_t places, OpenedImages& opened) {
  const DataConfig& data = config.data;
  std::optional<Images> images =
      data.validation.empty() ? std::move(opened.test)
                              : open_images(data.validation, data.format, opened.class_names, opened.train.characters).train;
  if (!images) return {};
  const std::string& path = data.validation.empty() ? data.train : data.validation;
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

// Which of the test images, data.validation and data.validation_fraction is not used, if there are several.
std::vector<std::string> notes_on_validation(const Config& config, const OpenedImages& opened) {
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

std::unique_ptr<TrainingData> text_data(Dataset dataset, int64_t sequence_length, const DataConfig& data) {
  if (dataset.train->has_pairs()) return std::make_unique<PairData>(std::move(dataset), sequence_length);
  return std::make_unique<TextData>(std::move(dataset), sequence_length, data);
}

std::unique_ptr<TrainingData> open_text_data(const Config& config) {
  std::vector<std::unique_ptr<TrainingData>> parts;
  for (Dataset& dataset : open_sources(data_options(config)))
    parts.push_back(text_data(std::move(dataset), config.model.sequence_length, config.data));
  if (config.data.sources.empty()) return std::move(parts[0]);
  return mixed_data(std::move(parts), config.data.sources);
}

std::unique_ptr<TrainingData> open_image_data(const Config& config, int64_t places) {
  const DataConfig& data = config.data;
  if (data.train.empty()) refuse_key(config, "data.train", "is missing; name a folder or file of images (docs/data.md)");
  OpenedImages opened = open_images(data.train, data.format);
  check_shape(config, data.train, opened.train);
  check_places(config, data.train, opened.train, places);
  const Normalization normalization = normalization_of(config, opened.train.channels);
  const Augmentation augmentation{static_cast<uint64_t>(config.training.seed), data.crop_padding, data.flip};
  std::vector<std::string> notes = notes_on_validation(config, opened);
  std::optional<Images> validation = validation_images(config, places, opened);
  const auto train = std::make_shared<const Images>(std::move(opened.train));
  Division division(train->count(), validation ? 0 : data.validation_fraction);
  if (division.training.empty())
    refuse_key(config, "data.validation_fraction", "leaves no image for training; use a smaller one");
  const auto training = std::make_shared<ImageSource>(train, std::move(division.training), normalization, augmentation, places);
  std::shared_ptr<const ImageSource> held_out;
  if (validation) {
    const auto images = std::make_shared<const Images>(std::move(*validation));
    held_out =
        std::make_shared<ImageSource>(images, Division(images->count(), 0).training, normalization, Augmentation{}, places);
  } else if (!division.held_out.empty()) {
    held_out = std::make_shared<ImageSource>(train, std::move(division.held_out), normalization, Augmentation{}, places);
  }
  return std::make_unique<ImageData>(training, held_out, std::move(opened.class_names), std::move(notes));
}

}  // namespace trivet::data
