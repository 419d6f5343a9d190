// Pairs of answers as samples of two rows: a prompt with the answer that is preferred, and with the one that is rejected.
// Targets in prompts and in the padding after an answer are -1.
//
//   S = 8   prompt ppp   answers aaa and bbbb e (end of text)     input    pppaaa..  pppbbbb.
//                                                                 targets  --aaae--  --bbbbe-
//
// A row reads up to S + 1 tokens: the last one is only a target. A longer answer loses its end, as in TRL.
//
// With packing "isolated" a sample has several pairs, which do not see each other (data/document_source.h): document k of its
// first row is preferred to document k of its second row. Each pair goes into the first sample that has room
// (data/first_fit.h), in the order of the data, which no seed changes.
//
//   S = 12  three pairs, the third of which no longer fits       input    pppaaaqcc...  pppbbbbqdd..   sample 0
//                                                                         rrreee......  rrrfffff....   sample 1
#pragma once

#include <memory>
#include <vector>

#include "data/first_fit.h"
#include "data/options.h"
#include "data/sample_source.h"
#include "data/token_sequence.h"

namespace trivet::data {

class PairSource final : public SampleSource {
 public:
  // Throws DataError if a prompt leaves no place for its answer. `tokens` must have pairs. With any packing but Isolated, a
  // sample is one pair.
  PairSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length, Packing packing = Packing::Stream);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return pairs_of_samples_.samples(); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  void fill_documents(int64_t sample, std::span<int32_t> first_tokens) const override;
  int64_t pairs() const override { return static_cast<int64_t>(ends_.size()) / 2; }
  void fill_answers(int64_t sample, std::span<int64_t> answers) const override;
  bool may_lack_targets() const override { return false; }  // the constructor and the encoder see to it
  std::string digest() const override;

  int64_t cut_answers() const { return cut_answers_; }
  double padding() const;  // share of the places of all rows

 private:
  struct Answer {
    int64_t first, tokens;  // range that is read, with the prompt
    size_t inputs() const { return static_cast<size_t>(tokens - 1); }
  };
  Answer answer(int64_t number) const;
  bool asks_for_something(const Answer& answer) const;
  void put_pairs_where_they_fit();
  // Calls visit(number of the answer, place) for each answer of the sample. Places count from the first of both rows.
  template <typename Visit>
  void visit_answers(int64_t sample, Visit visit) const;

  std::shared_ptr<const TokenSequence> tokens_;
  SampleSpec spec_;
  std::vector<int64_t> ends_;  // ends of prompts with their answers
  FittedItems pairs_of_samples_;
  int64_t cut_answers_ = 0;
};

}  // namespace trivet::data
