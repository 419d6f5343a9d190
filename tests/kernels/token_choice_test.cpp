// The choice of tokens against its definition, by sorting; and that rows go where they belong.
#include <algorithm>

#include "core/random.h"
#include "tests/kernels/every_device.h"

namespace trivet::kernels::token_choice_test {
namespace {

using Places = Values<int32_t>;

Places chosen_of(Kernels& kernels, int64_t samples, int64_t count, int64_t sequence, int64_t first_sample, Number step) {
  Places chosen(samples * count, -1);
  kernels.choose_tokens({.chosen = view_of(chosen, {samples, count}),
                         .sequence = sequence,
                         .key = 77,
                         .step = step,
                         .first_sample = first_sample});
  return chosen;
}

Places by_sorting(int64_t sample, int64_t count, int64_t sequence, uint64_t step) {
  std::vector<std::pair<uint32_t, int32_t>> words;
  for (int64_t s = 0; s < sequence; ++s)
    words.emplace_back(philox(77, s / 4, (step << 32) + static_cast<uint64_t>(sample))[s % 4], static_cast<int32_t>(s));
  std::ranges::sort(words);
  Places places;
  for (int64_t k = 0; k < count; ++k) places.push_back(words[k].second);
  std::ranges::sort(places);
  return places;
}

TEST_P(KernelsOnEveryDevice, ChooseTokensTakesThoseWithTheSmallestWords) {
  for (const auto& [count, sequence] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {5, 9}, {9, 9}, {200, 256}, {255, 257}, {64, 1030}, {1030, 1030}})
    GetParam()->every_way([&, n = count, s = sequence](Kernels& kernels) {
      const Places chosen = chosen_of(kernels, 3, n, s, 5, number(kernels, 4));
      for (int64_t b = 0; b < 3; ++b)
        EXPECT_EQ(Places(chosen.begin() + b * n, chosen.begin() + (b + 1) * n), by_sorting(5 + b, n, s, 4))
            << n << " of " << s << ", sample " << b;
    });
}

// 8 of 32 tokens in each of 4,000 choices: a token is chosen 1,000 times, five standard deviations are 137.
TEST_P(KernelsOnEveryDevice, ChooseTokensChoosesEachTokenAsOften) {
  if (takes_too_long(4000 * 8)) return;
  std::vector<int> times(32);
  for (const int32_t place : chosen_of(kernels(), 4000, 8, 32, 0, 1)) ++times[place];
  for (const int count : times) EXPECT_NEAR(count, 1000, 137);
}

TEST_P(KernelsOnEveryDevice, ChooseTokensDependsOnStepAndSampleAlone) {
  const Places both = chosen_of(kernels(), 2, 10, 40, 6, 3), second = chosen_of(kernels(), 1, 10, 40, 7, 3);
  EXPECT_EQ(Places(both.begin() + 10, both.end()), second);
  EXPECT_NE(Places(both.begin(), both.begin() + 10), second);
  EXPECT_NE(chosen_of(kernels(), 1, 10, 40, 7, 4), second);
}

TEST_P(KernelsOnEveryDevice, GatherTokensTakesRowsAndScatterTokensPutsThemBack) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t width : {1, 33, 64, 300}) {
      const int64_t samples = 2, sequence = 70;
      if (takes_too_long(samples * sequence * width)) continue;
      Places places = chosen_of(kernels(), samples, 33, sequence, 0, 0);
      const ConstTensorView chosen = view_of(places, {samples, 33});
      const HostTensor x = HostTensor::random(dtype, {samples, sequence, width}, 1),
                       others = HostTensor::random(dtype, {samples, sequence, width}, 2);
      const auto moved = same_bits_every_way([&](Kernels& kernels) {
        HostTensor some = HostTensor::poisoned(dtype, {samples, 33, width}), all = others;
        kernels.gather_tokens({.x = x.view(), .chosen = chosen, .out = some.view()});
        kernels.scatter_tokens({.x = some.view(), .chosen = chosen, .out = all.view()});
        return std::vector{some, all};
      });
      for (int64_t row = 0; row < samples * 33; ++row)
        for (int64_t col = 0; col < width; ++col)
          ASSERT_EQ(moved[0].at(row * width + col), x.at((row / 33 * sequence + places[row]) * width + col));
      for (int64_t row = 0; row < samples * sequence; ++row) {
        const auto first = places.begin() + row / sequence * 33;
        const bool is_chosen = std::find(first, first + 33, row % sequence) != first + 33;
        for (int64_t col = 0; col < width; ++col)
          ASSERT_EQ(moved[1].at(row * width + col), (is_chosen ? x : others).at(row * width + col));
      }
    }
}

TEST_P(KernelsOnEveryDevice, GatherTokensRefusesWhatDoesNotFit) {
  HostTensor x(DType::Float32, {2, 5, 8}), out(DType::Float32, {2, 3, 8});
  Places places(6);
  EXPECT_THROW(kernels().gather_tokens({x.view(), {places.data(), DType::Int32, {2, 2}}, out.view()}), std::logic_error);
  EXPECT_THROW(kernels().gather_tokens({out.view(), {places.data(), DType::Int32, {2, 5}}, x.view()}), std::logic_error);
  EXPECT_THROW(kernels().scatter_tokens({x.view(), {places.data(), DType::Int32, {2, 3}}, out.view()}), std::logic_error);
  EXPECT_THROW(kernels().choose_tokens({.chosen = {places.data(), DType::Int32, {2, 3}}, .sequence = 2}), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::token_choice_test
