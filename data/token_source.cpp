#include "data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace trivet::data {

TokenSource::TokenSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length, LossOn loss_on)
    : tokens_(std::move(tokens)),
      spec_{.input = {sequence_length},
            .targets = {sequence_length},
            .input_values = tokens_->vocabulary_size(),
            .classes = tokens_->vocabulary_size()},
      loss_on_(loss_on) {
  const int64_t given = tokens_->tokens();
  if (samples() < 1)
    throw DataError(ExitCode::Usage,
                    fmt::format("data: {} tokens are too few for one sample of sequence_length {}, which needs {}; "
                                "{}",
                                given, sequence_length, sequence_length + 1,
                                given > 1 ? fmt::format("give more text or make model.sequence_length at most {}", given - 1)
                                          : "give more text; a sample has at least 2 tokens"));
}

void TokenSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  const int64_t length = spec_.input[0];
  std::vector<int32_t> tokens(length + 1);
  tokens_->read(sample * length, tokens);
  std::memcpy(input.data(), tokens.data(), input.size());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  if (loss_on_ == LossOn::Completions) tokens_->ignore(sample * length + 1, targets);
}

bool TokenSource::has_targets(int64_t sample) const {
  if (!may_lack_targets()) return true;
  std::vector<int32_t> targets(static_cast<size_t>(spec_.input[0]), 0);
  tokens_->ignore(sample * spec_.input[0] + 1, targets);
  return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
}

}  // namespace trivet::data
