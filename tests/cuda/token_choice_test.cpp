// Choices of tokens and their rows are the CPU's, in whatever order threads run.
#include "tests/cuda/twins.h"

namespace trivet::kernels::token_choice_test {
namespace {

Twin chosen_by_both(int64_t samples, int64_t count, int64_t sequence) {
  Twin chosen = Twin::of(std::vector<int32_t>(samples * count, -1), {samples, count}), step = number_of(6);
  run_twins<ChooseTokens>([&](const auto& view) {
    return ChooseTokens{.chosen = view(chosen), .sequence = sequence, .key = 99, .step = number(view, step), .first_sample = 3};
  });
  return chosen;
}

TEST(CudaTokenChoice, ChoosesTheTokensOfTheCpu) {
  in_every_order([] {
    for (const auto& [count, sequence] :
         {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {9, 9}, {200, 256}, {255, 257}, {64, 1030}, {1030, 1030}})
      chosen_by_both(2, count, sequence).expect_same_bits(std::to_string(count) + " of " + std::to_string(sequence));
  });
}

TEST(CudaTokenChoice, MovesRowsAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t width : {1, 33, 64}) {
      Twin chosen = chosen_by_both(3, 20, 50);
      Twin x = Twin::random(dtype, {3, 50, width}, 1), some = Twin::poisoned(dtype, {3, 20, width});
      Twin all = Twin::random(dtype, {3, 50, width}, 2);
      run_twins<GatherTokens>(
          [&](const auto& view) { return GatherTokens{.x = view(x), .chosen = view(chosen), .out = view(some)}; });
      run_twins<ScatterTokens>(
          [&](const auto& view) { return ScatterTokens{.x = view(some), .chosen = view(chosen), .out = view(all)}; });
      some.expect_same_bits("gathered " + text(dtype));
      all.expect_same_bits("scattered " + text(dtype));
    }
}

}  // namespace
}  // namespace trivet::kernels::token_choice_test
