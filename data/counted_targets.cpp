#include "data/counted_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace trivet::data {
namespace {

int64_t first_samples(const SampleSource& source, int64_t most) {
  return most > 0 ? std::min(most, source.samples()) : source.samples();
}

}  // namespace

std::string PairCounts::in_words() const {
  if (equal == all)
    return fmt::format("{} equal answers, so there is nothing to learn: \"chosen\" and \"rejected\" must differ",
                       all == 1 ? "its only pair has" : fmt::format("all of its {} pairs have", all));
  return fmt::format("{} of {} pairs {} equal answers, from which nothing is learned", equal, all, equal == 1 ? "has" : "have");
}

PairCounts count_pairs(const TokenSequence& tokens, int64_t most) {
  const std::vector<int64_t> ends = tokens.document_ends();
  PairCounts counts{.all = static_cast<int64_t>(ends.size() / 2)};
  std::vector<int32_t> chosen, rejected;
  int64_t begin = 0;
  for (size_t number = 0; number + 1 < ends.size(); number += 2) {
    const int64_t middle = ends[number], end = ends[number + 1];
    const auto length = [&](int64_t whole) { return most > 0 ? std::min(whole, most) : whole; };
    if (length(middle - begin) == length(end - middle)) {
      chosen.resize(static_cast<size_t>(length(middle - begin)));
      rejected.resize(chosen.size());
      tokens.read(begin, chosen);
      tokens.read(middle, rejected);
      counts.equal += chosen == rejected ? 1 : 0;
    }
    begin = end;
  }
  return counts;
}

bool counts_any(const TokenSequence& tokens) {
  constexpr int64_t kPiece = 1 << 16;
  if (!tokens.marks_prompts()) return tokens.tokens() > 0;
  std::vector<int32_t> targets;
  for (int64_t first = 0; first < tokens.tokens(); first += kPiece) {
    targets.assign(std::min(kPiece, tokens.tokens() - first), 0);
    tokens.ignore(first, targets);
    if (std::ranges::any_of(targets, [](int32_t target) { return target >= 0; })) return true;
  }
  return false;
}

bool has_any_target(const SampleSource& source, int64_t most) {
  const int64_t samples = first_samples(source, most);
  if (!source.may_lack_targets()) return samples > 0;
  for (int64_t sample = 0; sample < samples; ++sample)
    if (source.has_targets(sample)) return true;
  return false;
}

int64_t samples_without_targets(const SampleSource& source, int64_t most) {
  if (!source.may_lack_targets()) return 0;
  int64_t count = 0;
  const int64_t samples = first_samples(source, most);
  for (int64_t sample = 0; sample < samples; ++sample) count += source.has_targets(sample) ? 0 : 1;
  return count;
}

void refuse_without_targets(const SampleSource& source, const std::string& of, int64_t most) {
  if (has_any_target(source, most)) return;
  const int64_t samples = first_samples(source, most);
  throw DataError(
      ExitCode::Usage,
      fmt::format("data: none of the {} {} samples of model.sequence_length {} has a token that the loss counts, so there is "
                  "nothing to learn from and no loss: {}; use data with answers, or count all tokens with data.loss_on \"all\"",
                  samples, of, source.spec().input[0],
                  "their tokens are those of prompts, of messages that are not the assistant's or have weight 0, or the first "
                  "of their document"));
}

}  // namespace trivet::data
