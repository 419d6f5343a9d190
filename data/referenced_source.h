// Pairs of answers together with their log-probabilities in the reference model.
#pragma once

#include <memory>
#include <vector>

#include "data/sample_source.h"

namespace trivet::data {

// [pair][2]: log-probabilities of the preferred and of the rejected answer, by their numbers (SampleSource::fill_answers).
using ReferenceTable = std::vector<double>;

class ReferencedSource final : public SampleSource {
 public:
  // The table may be filled later, but before a sample is.
  ReferencedSource(std::shared_ptr<const SampleSource> pairs, std::shared_ptr<const ReferenceTable> table)
      : pairs_(std::move(pairs)), table_(std::move(table)) {}

  const SampleSpec& spec() const override { return pairs_->spec(); }
  int64_t samples() const override { return pairs_->samples(); }
  std::vector<int64_t> sizes_of_sources() const override { return pairs_->sizes_of_sources(); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override {
    pairs_->fill(sample, epoch, input, targets);
  }
  bool may_lack_targets() const override { return pairs_->may_lack_targets(); }
  bool has_targets(int64_t sample) const override { return pairs_->has_targets(sample); }
  void fill_documents(int64_t sample, std::span<int32_t> first_tokens) const override {
    pairs_->fill_documents(sample, first_tokens);
  }
  int64_t pairs() const override { return pairs_->pairs(); }
  void fill_answers(int64_t sample, std::span<int64_t> answers) const override { pairs_->fill_answers(sample, answers); }
  void fill_reference(int64_t sample, std::span<double> log_probabilities) const override {
    std::vector<int64_t> answers(log_probabilities.size());
    fill_answers(sample, answers);
    for (size_t i = 0; i < answers.size(); ++i)
      log_probabilities[i] = answers[i] < 0 ? 0 : table_->at(static_cast<size_t>(answers[i]));
  }
  std::string digest() const override { return pairs_->digest(); }

 private:
  std::shared_ptr<const SampleSource> pairs_;
  std::shared_ptr<const ReferenceTable> table_;
};

}  // namespace trivet::data
