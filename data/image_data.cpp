#include "data/image_data.h"

#include <fmt/format.h>

#include <utility>

namespace trivet::data {
namespace {

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

}  // namespace

std::unique_ptr<TrainingData> image_data(std::shared_ptr<const ImageSource> train,
                                         std::shared_ptr<const ImageSource> validation, std::vector<std::string> class_names,
                                         std::vector<std::string> notes) {
  return std::make_unique<ImageData>(std::move(train), std::move(validation), std::move(class_names), std::move(notes));
}

}  // namespace trivet::data
