#include <algorithm>
#include <cstring>
#include <vector>

#include "core/random.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/math.h"

namespace trivet::kernels::cpu {
namespace {

// Calls body(row of the chosen tokens, row of all tokens) for each chosen token.
template <typename Body>
void for_each_chosen(ConstTensorView chosen, int64_t sequence, int64_t width, int threads, const Body& body) {
  const int64_t of_sequence = chosen.shape[1];
  for_each_range(chosen.elements(), threads, 1, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, row / of_sequence * sequence + chosen.as<int32_t>()[row]);
  });
}

}  // namespace

void compute(const ChooseTokens& args, int) {
  const int64_t count = args.chosen.shape[1];
  std::vector<std::pair<uint32_t, int32_t>> tokens(static_cast<size_t>(args.sequence));  // random word, place
  for (int64_t b = 0; b < args.chosen.shape[0]; ++b) {
    const uint64_t high = (static_cast<uint64_t>(args.step.value()) << 32) + static_cast<uint64_t>(args.first_sample + b);
    for (int64_t s = 0; s < args.sequence; ++s)
      tokens[s] = {philox(args.key, static_cast<uint64_t>(s / 4), high)[s % 4], static_cast<int32_t>(s)};
    std::ranges::nth_element(tokens, tokens.begin() + count);
    int32_t* chosen = args.chosen.as<int32_t>() + b * count;
    for (int64_t k = 0; k < count; ++k) chosen[k] = tokens[k].second;
    std::sort(chosen, chosen + count);
  }
}

void compute(const GatherTokens& args, int threads) {
  const int64_t width = args.x.shape[2];
  const auto bytes = static_cast<size_t>(width * size_of(args.x.dtype));
  for_each_chosen(args.chosen, args.x.shape[1], width, threads, [&](int64_t some, int64_t all) {
    std::memcpy(static_cast<std::byte*>(args.out.data) + some * bytes, static_cast<const std::byte*>(args.x.data) + all * bytes,
                bytes);
  });
}

void compute(const ScatterTokens& args, int threads) {
  const int64_t width = args.x.shape[2];
  const auto bytes = static_cast<size_t>(width * size_of(args.x.dtype));
  for_each_chosen(args.chosen, args.out.shape[1], width, threads, [&](int64_t some, int64_t all) {
    std::memcpy(static_cast<std::byte*>(args.out.data) + all * bytes, static_cast<const std::byte*>(args.x.data) + some * bytes,
                bytes);
  });
}

}  // namespace trivet::kernels::cpu
