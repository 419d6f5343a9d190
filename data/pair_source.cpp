#include "data/pair_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/error.h"

namespace trivet::data {

PairSource::PairSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length, Packing packing)
    : tokens_(std::move(tokens)),
      spec_{.input = {sequence_length},
            .targets = {sequence_length},
            .input_values = tokens_->vocabulary_size(),
            .classes = tokens_->vocabulary_size(),
            .documents = packing == Packing::Isolated,
            .pairs = true},
      ends_(tokens_->document_ends()),
      pairs_of_samples_(ends_.size() / 2) {
  if (!tokens_->has_pairs() || ends_.size() % 2 != 0) throw std::logic_error("pair source: the tokens are no pairs");
  if (ends_.empty()) throw DataError(ExitCode::Usage, "data: there is not even one pair of answers");
  int64_t begin = 0;
  for (size_t number = 0; number < ends_.size(); ++number) {
    const Answer read = answer(static_cast<int64_t>(number));
    const int64_t all = ends_[number] - begin;
    begin = ends_[number];
    if (read.tokens == all) continue;
    ++cut_answers_;
    if (!asks_for_something(read))
      throw DataError(
          ExitCode::Usage,
          fmt::format(
              "data: pair {}: the prompt of the {} answer fills the {} tokens that a row reads with model.sequence_length "
              "{}, so that nothing of the answer is left; shorten the prompt, leave the pair out, or use a longer "
              "sequence",
              number / 2 + 1, number % 2 == 0 ? "preferred" : "rejected", sequence_length + 1, sequence_length));
  }
  if (spec_.documents) put_pairs_where_they_fit();
}

void PairSource::put_pairs_where_they_fit() {
  std::vector<int64_t> sizes;
  for (size_t number = 0; number < ends_.size(); ++number) {
    const int64_t tokens = answer(static_cast<int64_t>(number)).tokens;
    if (tokens < 2)
      throw DataError(ExitCode::Usage,
                      fmt::format("data: pair {}: an answer has {} token{} with its prompt, and a document of data.packing "
                                  "\"isolated\" needs two; prepare the pairs again with `trivet data prepare --pairs`",
                                  number / 2 + 1, tokens, tokens == 1 ? "" : "s"));
    sizes.push_back(tokens - 1);
  }
  pairs_of_samples_ = first_fit(sizes, 2, spec_.input[0]);
}

PairSource::Answer PairSource::answer(int64_t number) const {
  const int64_t first = number == 0 ? 0 : ends_[number - 1];
  return {first, std::min(ends_[number] - first, spec_.input[0] + 1)};
}

bool PairSource::asks_for_something(const Answer& answer) const {
  std::vector<int32_t> targets(answer.inputs(), 0);
  tokens_->ignore(answer.first + 1, targets);
  return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
}

template <typename Visit>
void PairSource::visit_answers(int64_t sample, Visit visit) const {
  for (int64_t row = 0; row < spec_.rows(); ++row) {
    size_t place = static_cast<size_t>(row * spec_.input[0]);
    for (const size_t pair : pairs_of_samples_.of(sample)) {
      const int64_t number = 2 * static_cast<int64_t>(pair) + row;
      visit(number, place);
      place += answer(number).inputs();
    }
  }
}

void PairSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  std::ranges::fill(input, std::byte{0});
  std::ranges::fill(targets, -1);
  visit_answers(sample, [&](int64_t number, size_t place) {
    const Answer read = answer(number);
    std::vector<int32_t> tokens(read.tokens);
    tokens_->read(read.first, tokens);
    const std::span<int32_t> expected = targets.subspan(place, read.inputs());
    std::memcpy(input.data() + place * sizeof(int32_t), tokens.data(), expected.size_bytes());
    std::copy(tokens.begin() + 1, tokens.end(), expected.begin());
    tokens_->ignore(read.first + 1, expected);
  });
}

void PairSource::fill_documents(int64_t sample, std::span<int32_t> first_tokens) const {
  const auto length = static_cast<size_t>(spec_.input[0]);
  std::ranges::fill(first_tokens, static_cast<int32_t>(length));
  visit_answers(sample, [&](int64_t number, size_t place) {
    std::ranges::fill(first_tokens.subspan(place, answer(number).inputs()), static_cast<int32_t>(place % length));
  });
}

void PairSource::fill_answers(int64_t sample, std::span<int64_t> answers) const {
  if (!spec_.documents) return SampleSource::fill_answers(sample, answers);
  std::ranges::fill(answers, -1);
  visit_answers(sample, [&](int64_t number, size_t place) { answers[place] = number; });
}

std::string PairSource::digest() const {
  return spec_.documents ? fmt::format("{} packing {}", tokens_->digest(), name_of(Packing::Isolated)) : tokens_->digest();
}

double PairSource::padding() const {
  size_t used = 0;
  for (size_t number = 0; number < ends_.size(); ++number) used += answer(static_cast<int64_t>(number)).inputs();
  return 1 - static_cast<double>(used) / static_cast<double>(samples() * spec_.rows() * spec_.input[0]);
}

}  // namespace trivet::data
