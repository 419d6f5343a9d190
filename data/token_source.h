// Text as samples: sample n is the tokens from n x S, and its targets are the same tokens shifted by one. Targets that the data
// marks as prompts are -1 if only completions count.
#pragma once

#include <memory>

#include "data/options.h"
#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

class TokenSource final : public SampleSource {
 public:
  // Throws DataError if there are too few tokens for one sample.
  TokenSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length, LossOn loss_on = LossOn::Completions);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return (tokens_->tokens() - 1) / spec_.input[0]; }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  bool may_lack_targets() const override { return loss_on_ == LossOn::Completions && tokens_->marks_prompts(); }
  bool has_targets(int64_t sample) const override;
  std::string digest() const override { return tokens_->digest(); }

 private:
  std::shared_ptr<const TokenSequence> tokens_;
  SampleSpec spec_;
  LossOn loss_on_;
};

}  // namespace trivet::data
