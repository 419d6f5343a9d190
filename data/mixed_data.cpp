#include <fmt/format.h>

#include "data/mixture.h"
#include "data/training_data.h"

namespace trivet::data {
namespace {

class MixedData final : public TrainingData {
 public:
  MixedData(std::vector<std::unique_ptr<TrainingData>> parts, const std::vector<DataSource>& sources)
      : parts_(std::move(parts)), sources_(sources), quotas_(mixture_quotas(sources)) {
    std::vector<std::shared_ptr<const SampleSource>> train, validation;
    for (const auto& part : parts_) {
      train.push_back(part->train());
      if (auto held_out = part->validation()) validation.push_back(std::move(held_out));
    }
    train_ = std::make_shared<JoinedSource>(std::move(train));
    if (!validation.empty()) validation_ = std::make_shared<JoinedSource>(std::move(validation));
  }

  std::shared_ptr<const SampleSource> train() const override { return train_; }
  std::shared_ptr<const SampleSource> validation() const override { return validation_; }
  // Weights decide what a step reads, as the data does.
  std::string train_digest() const override { return fmt::format("{} quotas {}", train_->digest(), fmt::join(quotas_, " ")); }
  std::string validation_digest() const override { return validation_ ? validation_->digest() : ""; }
  std::string sizes() const override {
    std::string text;
    for (size_t i = 0; i < parts_.size(); ++i)
      text += fmt::format("{}{:.4g} % {} ({})", text.empty() ? "" : "; ", 100 * static_cast<double>(quotas_[i]) / kMixtureBlock,
                          sources_[i].path, parts_[i]->sizes());
    return text;
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> all;
    for (const auto& part : parts_)
      for (std::string& note : part->notes()) all.push_back(std::move(note));
    return all;
  }
  std::string in_words(std::span<const int32_t> targets) const override { return parts_[0]->in_words(targets); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return parts_[0]->tokenizer(); }
  int64_t vocabulary_size() const override { return parts_[0]->vocabulary_size(); }

 private:
  std::vector<std::unique_ptr<TrainingData>> parts_;
  std::vector<DataSource> sources_;
  std::vector<int64_t> quotas_;
  std::shared_ptr<const JoinedSource> train_, validation_;  // the latter is null if there is none
};

}  // namespace

std::unique_ptr<TrainingData> mixed_data(std::vector<std::unique_ptr<TrainingData>> parts,
                                         const std::vector<DataSource>& sources) {
  return std::make_unique<MixedData>(std::move(parts), sources);
}

}  // namespace trivet::data
