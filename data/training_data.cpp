#include "data/training_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/printable.h"
#include "data/counted_targets.h"
#include "data/data_error.h"
#include "data/document_source.h"
#include "data/pair_source.h"
#include "data/token_source.h"

namespace trivet::data {
namespace {

// Returns the tokens' numbers if there is no tokenizer, or if one of the tokens is unknown to it.
std::string words_of(const Dataset& dataset, std::span<const int32_t> targets) {
  std::vector<int32_t> tokens(targets.begin(), targets.end());
  std::erase_if(tokens, [](int32_t token) { return token < 0; });
  const Tokenizer* tokenizer = dataset.tokenizer.get();
  const auto is_known = [&](int32_t token) { return token < tokenizer->vocabulary_size(); };
  if (tokenizer && std::ranges::all_of(tokens, is_known)) return tokenizer->decode(tokens);
  return fmt::format("{}", fmt::join(tokens, " "));
}

// Makes a source of the training data. An error may come from how much of them is held out.
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
                                           Packing packing, const std::string& of, std::vector<std::string>& notes) {
  if (!tokens) return nullptr;
  auto source = std::make_shared<PairSource>(tokens, sequence_length, packing);
  const PairCounts counts = count_pairs(*tokens, sequence_length + 1);
  const std::string cut = source->cut_answers() == 0
                              ? ""
                              : fmt::format(", compared up to where model.sequence_length {} cuts them", sequence_length);
  if (counts.equal == counts.all) throw DataError(ExitCode::Usage, fmt::format("data: {}: {}{}", of, counts.in_words(), cut));
  if (counts.equal > 0) notes.push_back(fmt::format("{}: {}{}", of, counts.in_words(), cut));
  return source;
}

// Pairs of answers. A row has one answer, or several with packing "isolated".
class PairData final : public TrainingData {
 public:
  PairData(Dataset dataset, int64_t sequence_length)
      : dataset_(std::move(dataset)),
        train_(pairs_of(dataset_.train, sequence_length, dataset_.packing, "training pairs", dataset_.notes)),
        validation_(pairs_of(dataset_.validation, sequence_length, dataset_.packing, "validation pairs", dataset_.notes)) {}

  std::shared_ptr<const SampleSource> train() const override { return train_; }
  std::shared_ptr<const SampleSource> validation() const override { return validation_; }
  std::string train_digest() const override { return train_->digest(); }
  std::string validation_digest() const override { return validation_ ? validation_->digest() : ""; }
  std::string sizes() const override {
    const int64_t cut = train_->cut_answers();
    const int64_t samples = train_->samples();
    const std::string packed =
        train_->spec().documents ? fmt::format(", in {} sample{}", samples, samples == 1 ? "" : "s") : ",";
    return fmt::format("{} training pairs of answers{}{} with {:.1f} % padding, {} validation pairs", train_->pairs(),
                       cut == 0 ? "" : fmt::format(", {} longer than a row and cut", cut), packed, 100 * train_->padding(),
                       validation_ ? validation_->pairs() : 0);
  }
  std::vector<std::string> notes() const override { return dataset_.notes; }
  std::string in_words(std::span<const int32_t> targets) const override { return words_of(dataset_, targets); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return dataset_.tokenizer; }
  int64_t vocabulary_size() const override { return dataset_.vocabulary_size; }

 private:
  Dataset dataset_;
  std::shared_ptr<const PairSource> train_, validation_;
};

}  // namespace

std::unique_ptr<TrainingData> text_data(Dataset dataset, int64_t sequence_length, const DataConfig& data) {
  if (dataset.train->has_pairs()) return std::make_unique<PairData>(std::move(dataset), sequence_length);
  return std::make_unique<TextData>(std::move(dataset), sequence_length, data);
}

}  // namespace trivet::data
