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
            .classes = tokens_->vocabulary_size(),
            .documents = options.packing == Packing::Isolated},
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
  std::erase_if(pieces_, [](const Piece& piece) { return piece.tokens < 2; });
  if (longest < 2)
    throw DataError(ExitCode::Usage, fmt::format("data: none of the {} documents has two tokens, which a sample needs with "
                                                 "data.packing \"{}\"; use longer documents or \"stream\"",
                                                 ends_.size(), packing));
  pieces_of_samples_ = FittedItems(pieces_.size());
  if (spec_.documents) put_pieces_where_they_fit();
}

void DocumentSource::put_pieces_where_they_fit() {
  std::vector<int64_t> sizes;
  for (const Piece& piece : pieces_) sizes.push_back(piece.tokens - 1);
  pieces_of_samples_ = first_fit(sizes, 1, options_.sequence_length);
}

void DocumentSource::add_document(int64_t begin, int64_t end) {
  const int64_t most = options_.sequence_length + 1;
  if (options_.packing == Packing::Whole && !pieces_.empty()) {
    Piece& last = pieces_.back();
    if (end - last.first <= most) {
      last.tokens = end - last.first;
      return;
    }
  }
  if (end - begin > most) ++cut_documents_;
  while (end - begin > most) {
    pieces_.push_back({begin, most});
    begin += options_.sequence_length;
  }
  pieces_.push_back({begin, end - begin});
}

void DocumentSource::fill(int64_t sample, int64_t, std::span<std::byte> input, std::span<int32_t> targets) const {
  std::ranges::fill(input, std::byte{0});
  std::ranges::fill(targets, -1);
  for (const size_t number : pieces_of_samples_.of(sample)) {
    const Piece& piece = pieces_[number];
    std::vector<int32_t> tokens(piece.tokens);
    tokens_->read(piece.first, tokens);
    const std::span<int32_t> expected = targets.first(static_cast<size_t>(piece.tokens - 1));
    std::memcpy(input.data(), tokens.data(), expected.size_bytes());
    std::copy(tokens.begin() + 1, tokens.end(), expected.begin());
    ignore(piece, expected);
    input = input.subspan(expected.size_bytes());
    targets = targets.subspan(expected.size());
  }
}

void DocumentSource::fill_documents(int64_t sample, std::span<int32_t> first_tokens) const {
  std::ranges::fill(first_tokens, static_cast<int32_t>(first_tokens.size()));
  int64_t place = 0;
  for (const size_t number : pieces_of_samples_.of(sample)) {
    const Piece& piece = pieces_[number];
    std::fill_n(first_tokens.begin() + place, piece.tokens - 1, static_cast<int32_t>(place));
    place += piece.tokens - 1;
  }
}

void DocumentSource::ignore(const Piece& piece, std::span<int32_t> targets) const {
  const auto [first, count] = piece;
  if (options_.loss_on == LossOn::Completions) tokens_->ignore(first + 1, targets);
  // The token at the end of a document is the first of the next one.
  auto end = std::ranges::upper_bound(ends_, first);
  for (; end != ends_.end() && *end < first + count; ++end) targets[*end - first - 1] = -1;
}

bool DocumentSource::has_targets(int64_t sample) const {
  return std::ranges::any_of(pieces_of_samples_.of(sample), [&](size_t number) {
    const Piece& piece = pieces_[number];
    std::vector<int32_t> targets(static_cast<size_t>(piece.tokens - 1), 0);
    ignore(piece, targets);
    return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
  });
}

std::string DocumentSource::digest() const {
  return fmt::format("{} packing {}", tokens_->digest(), name_of(options_.packing));
}

double DocumentSource::padding() const {
  int64_t used = 0;
  for (const Piece& piece : pieces_) used += piece.tokens - 1;
  return 1 - static_cast<double>(used) / static_cast<double>(samples() * options_.sequence_length);
}

}  // namespace trivet::data
