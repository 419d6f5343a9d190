#include "data/pair_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/error.h"

namespace trivet::data {

PairSource::PairSource(std::shared_ptr<const TokenSequence> tokens, int64_t sequence_length)
    : tokens_(std::move(tokens)),
      spec_{.input = {sequence_length},
            .targets = {sequence_length},
            .input_values = tokens_->vocabulary_size(),
            .classes = tokens_->vocabulary_size(),
            .pairs = true},
      ends_(tokens_->document_ends()) {
  if (!tokens_->has_pairs() || ends_.size() % 2 != 0) throw std::logic_error("pair source: the tokens are no pairs");
  if (ends_.empty()) throw DataError(ExitCode::Usage, "data: there is not even one pair of answers");
  int64_t begin = 0;
  for (size_t number = 0; number < ends_.size(); ++number) {
    const Row read = row(static_cast<int64_t>(number));
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
}

PairSource::Row PairSource::row(int64_t number) const {
  const int64_t first = number == 0 ? 0 : ends_[number - 1];
  return {first, std::min(ends_[number] - first, spec_.input[0] + 1)};
}

bool PairSource::asks_for_something(const Row& row) const {
  std::vector<int32_t> targets(row.tokens - 1, 0);
  tokens_->ignore(row.first + 1, targets);
  return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
}

void PairSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  const size_t bytes = input.size() / 2, places = targets.size() / 2;
  for (const size_t of_pair : {0, 1})
    fill_row(row(2 * sample + static_cast<int64_t>(of_pair)), input.subspan(of_pair * bytes, bytes),
             targets.subspan(of_pair * places, places));
}

void PairSource::fill_row(const Row& row, std::span<std::byte> input, std::span<int32_t> targets) const {
  std::vector<int32_t> tokens(row.tokens);
  tokens_->read(row.first, tokens);
  std::ranges::fill(input, std::byte{0});
  std::ranges::fill(targets, -1);
  const std::span<int32_t> expected = targets.first(tokens.size() - 1);
  std::memcpy(input.data(), tokens.data(), expected.size_bytes());
  std::copy(tokens.begin() + 1, tokens.end(), expected.begin());
  tokens_->ignore(row.first + 1, expected);
}

double PairSource::padding() const {
  int64_t used = 0;
  for (size_t number = 0; number < ends_.size(); ++number) used += row(static_cast<int64_t>(number)).tokens - 1;
  return 1 - static_cast<double>(used) / static_cast<double>(static_cast<int64_t>(ends_.size()) * spec_.input[0]);
}

}  // namespace trivet::data
