// Pairs of answers as samples of two rows: a prompt with the answer that is preferred, and with the one that is rejected.
// Targets in prompts and in the padding after an answer are -1.
//
//   S = 8   prompt ppp   answers aaa and bbbb e (end of text)     input    pppaaa..  pppbbbb.
//                                                                 targets  --aaae--  --bbbbe-
//
// A row reads up to S + 1 tokens: the last one is only a target. A longer answer loses its end, as in TRL.
#pragma once

#include <memory>
#include <vector>

#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

class PairSource final : public SampleSource {
 public:
  // Throws DataError if a prompt leaves no place for its answer. `tokens` must have pairs.
  PairSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return static_cast<int64_t>(ends_.size()) / spec_.rows(); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  bool may_lack_targets() const override { return false; }  // the constructor and the encoder see to it
  std::string digest() const override { return tokens_->digest(); }

  int64_t cut_answers() const { return cut_answers_; }
  double padding() const;  // share of the places of all rows

 private:
  struct Row {
    int64_t first, tokens;  // range that is read
  };
  Row row(int64_t number) const;
  void fill_row(const Row& row, std::span<std::byte> input, std::span<int32_t> targets) const;
  bool asks_for_something(const Row& row) const;

  std::shared_ptr<const TokenSequence> tokens_;
  SampleSpec spec_;
  std::vector<int64_t> ends_;  // ends of prompts with their answers
  int64_t cut_answers_ = 0;
};

}  // namespace trivet::data
