#include "data/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace trivet::data {
namespace {

// The tokens that can be drawn at all.
std::vector<LikelyToken> possible_tokens(std::span<const float> logits) {
  std::vector<LikelyToken> possible;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      throw NumericsError(
          fmt::format("sampling: the logit of token {} is {}; the model's weights are damaged or diverged", i, logits[i]));
    if (logits[i] != -INFINITY) possible.push_back({static_cast<int32_t>(i), logits[i]});
  }
  if (possible.empty()) throw NumericsError("sampling: no token is possible (all logits are -infinity)");
  return possible;
}

bool more_likely(const LikelyToken& a, const LikelyToken& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

// Sorts the tokens and keeps the `count` most likely.
void keep_most_likely(std::vector<LikelyToken>& all, int64_t count) {
  const auto kept = std::min<int64_t>(count, static_cast<int64_t>(all.size()));
  std::partial_sort(all.begin(), all.begin() + kept, all.end(), more_likely);
  all.resize(kept);
}

void softmax(std::vector<LikelyToken>& sorted, double temperature) {
  const double greatest = sorted.front().probability;
  double sum = 0;
  for (auto& likely : sorted) sum += likely.probability = std::exp((likely.probability - greatest) / temperature);
  for (auto& likely : sorted) likely.probability /= sum;
}

void keep_nucleus(std::vector<LikelyToken>& sorted, double top_p) {
  double sum = 0;
  size_t kept = 0;
  while (kept < sorted.size() && sum < top_p) sum += sorted[kept++].probability;
  sorted.resize(kept);
  for (auto& likely : sorted) likely.probability /= sum;
}

}  // namespace

void check(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    throw ConfigError(
        fmt::format("temperature: {} is not accepted; use 0 (the most likely token) or more", options.temperature));
  if (options.top_k < 0) throw ConfigError(fmt::format("top_k: {} is not accepted; use 0 (all tokens) or more", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw ConfigError(fmt::format("top_p: {} is not accepted; use more than 0 and at most 1", options.top_p));
}

std::vector<LikelyToken> likely_tokens(std::span<const float> logits, const SamplingOptions& options) {
  check(options);
  std::vector<LikelyToken> kept = possible_tokens(logits);
  const bool greedy = options.temperature == 0;
  keep_most_likely(kept, greedy ? 1 : options.top_k == 0 ? static_cast<int64_t>(kept.size()) : options.top_k);
  softmax(kept, greedy ? 1.0 : options.temperature);
  if (options.top_p < 1) keep_nucleus(kept, options.top_p);
  return kept;
}

int32_t choose(std::span<const LikelyToken> tokens, double unit) {
  double sum = 0;
  for (const auto& likely : tokens) {
    sum += likely.probability;
    if (sum > unit) return likely.token;
  }
  return tokens.back().token;  // the sum of all may round to less than 1
}

double sampling_unit(uint64_t seed, int64_t sequence, int64_t position) {
  const PhiloxBlock random =
      philox(random_key(seed, "sampling"), static_cast<uint64_t>(position), static_cast<uint64_t>(sequence));
  const uint64_t bits = random[0] | uint64_t{random[1]} << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t seed, int64_t sequence,
                     int64_t position) {
  return choose(likely_tokens(logits, options), sampling_unit(seed, sequence, position));
}

}  // namespace trivet::data
