#include "data/document_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace trivet::data {

DocumentSource::DocumentSource(std::shared_ptr<const TokenSequence> tokens, const Options& options)
    : tokens_(std::move(tokens)),
      options_(options),
      spec_{.input = {options.sequence_length},
            .targets = {options.sequence_length},
            .input_values = tokens_->vocabulary_size(),
            .classes = tokens_->vocabulary_size()},
      ends_(tokens_->document_ends()),
      may_lack_targets_(options.loss_on == LossOn::Completions && tokens_->marks_prompts()) {
  const std::string packing(name_of(options.packing));
  if (ends_.empty())
    throw DataError(ExitCode::Usage,
                    fmt::format("data.packing: \"{}\" needs to know where documents end, which the data does not say; use "
                                "\"stream\", or prepare the texts with `trivet data prepare`",
                                packing));
  int64_t begin = 0, longest = 0;
  for (const int64_t end : ends_) {
    add_document(begin, end);
    longest = std::max(longest, end - begin);
    may_lack_targets_ = may_lack_targets_ || end - begin == 1;  // its token is no target, nor is that of the next document
    begin = end;
  }
  // A single token has no target.
  std::erase_if(samples_, [](const Sample& sample) { return sample.tokens < 2; });
  if (longest < 2)
    throw DataError(ExitCode::Usage, fmt::format("data: none of the {} documents has two tokens, which a sample needs with "
                                                 "data.packing \"{}\"; use longer documents or \"stream\"",
                                                 ends_.size(), packing));
}

void DocumentSource::add_document(int64_t begin, int64_t end) {
  const int64_t most = options_.sequence_length + 1;
  if (options_.packing == Packing::Whole && !samples_.empty()) {
    Sample& last = samples_.back();
    if (end - last.first <= most) {
      last.tokens = end - last.first;
      return;
    }
  }
  if (end - begin > most) ++cut_documents_;
  while (end - begin > most) {
    samples_.push_back({begin, most});
    begin += options_.sequence_length;
  }
  samples_.push_back({begin, end - begin});
}

void DocumentSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  const auto [first, count] = samples_[sample];
  std::vector<int32_t> tokens(count);
  tokens_->read(first, tokens);
  std::ranges::fill(input, std::byte{0});
  std::ranges::fill(targets, -1);
  const std::span<int32_t> expected = targets.first(static_cast<size_t>(count - 1));
  std::memcpy(input.data(), tokens.data(), expected.size_bytes());
  std::copy(tokens.begin() + 1, tokens.end(), expected.begin());
  ignore({first, count}, expected);
}

void DocumentSource::ignore(const Sample& sample, std::span<int32_t> targets) const {
  const auto [first, count] = sample;
  if (options_.loss_on == LossOn::Completions) tokens_->ignore(first + 1, targets);
  // The token at the end of a document is the first of the next one.
  auto end = std::ranges::upper_bound(ends_, first);
  for (; end != ends_.end() && *end < first + count; ++end) targets[*end - first - 1] = -1;
}

bool DocumentSource::has_targets(int64_t sample) const {
  std::vector<int32_t> targets(static_cast<size_t>(samples_[sample].tokens - 1), 0);
  ignore(samples_[sample], targets);
  return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
}

std::string DocumentSource::digest() const {
  return fmt::format("{} packing {}", tokens_->digest(), name_of(options_.packing));
}

double DocumentSource::padding() const {
  int64_t used = 0;
  for (const Sample& sample : samples_) used += sample.tokens - 1;
  return 1 - static_cast<double>(used) / static_cast<double>(samples() * options_.sequence_length);
}

}  // namespace trivet::data
