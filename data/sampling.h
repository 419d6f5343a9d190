// Choosing the next token from a row of logits, for `trivet generate`. Pure functions: the draw is a function of (seed,
// sequence, position), so the text is the same for every batch, layout and thread count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trivet::data {

// Applied in this order.
struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;         // keep the k most likely; 0: all
  double top_p = 1.0;        // then keep the fewest that together have at least this probability
};

// Throws ConfigError for a negative temperature or top_k, and a top_p outside (0, 1].
void check(const SamplingOptions& options);

struct LikelyToken {
  int32_t token = 0;
  double probability = 0;
};

// The tokens that may be drawn, most likely first (between equals, the lower id first), with probabilities that sum to 1. Never
// empty. A logit of -infinity is never chosen; throws NumericsError when a logit is NaN or +infinity, or all are -infinity.
std::vector<LikelyToken> likely_tokens(std::span<const float> logits, const SamplingOptions& options);

// The first token at which the running sum of probabilities exceeds `unit`, which is in [0, 1).
int32_t choose(std::span<const LikelyToken> tokens, double unit);

// 53 bits of counter-based randomness in [0, 1).
double sampling_unit(uint64_t seed, int64_t sequence, int64_t position);

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t seed, int64_t sequence,
                     int64_t position);

}  // namespace trivet::data
