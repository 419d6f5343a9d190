// Compares rotary embedding with the CPU's.
#include "tests/cuda/twins.h"

namespace trivet::kernels::activation_test {
namespace {

// From 1 radian per token down to nearly 1 / 10000.
std::vector<double> falling_frequencies(int64_t pairs) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
  return frequencies;
}

// Angles are computed in double and rounded once. The device's differ from the CPU's by a unit in the last place of a double at
// most, which shows in a float32 once in 10^8.
TEST(CudaRotary, TurnsHeadsAsTheCpu) {
  struct Shapes {
    int64_t sequences, positions, heads, key_value_heads, head_size;
  };
  for (const DType dtype : kFloatTypes)
    for (const Shapes& s : {Shapes{1, 1, 1, 1, 2}, {2, 5, 2, 1, 6}, {1, 3, 4, 2, 64}, {3, 2, 2, 2, 48}, {0, 4, 1, 1, 8}})
      for (const bool backward : {false, true}) {
        const int64_t width = (s.heads + 2 * s.key_value_heads) * s.head_size;
        const std::vector<double> frequencies = falling_frequencies(s.head_size / 2);
        Twin qkv = Twin::random(dtype, {s.sequences, s.positions, width}, 1, s.head_size == 48 ? 1 : 0);
        const auto make = [&](const auto& view) {
          return Rotary{.qkv = view(qkv),
                        .heads = s.heads,
                        .key_value_heads = s.key_value_heads,
                        .frequencies = frequencies,
                        .backward = backward};
        };
        run_twins<Rotary>(make);
        qkv.expect_near("rotary " + text(dtype), 2 * sum_unit(dtype), 2 * half_unit(dtype));
      }
}

TEST(CudaRotary, TurnsAndEnlargesAPartOfEachHeadAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t head_size : {48, 50}) {
      const std::vector<double> frequencies = falling_frequencies(16);
      Twin qkv = Twin::random(dtype, {2, 7, 4 * head_size}, 1);
      const auto make = [&](const auto& view) {
        return Rotary{.qkv = view(qkv), .heads = 2, .key_value_heads = 1, .frequencies = frequencies, .magnitude = 1.375};
      };
      run_twins<Rotary>(make);
      qkv.expect_near("rotary " + text(dtype), 2 * sum_unit(dtype), 2 * half_unit(dtype));
    }
}

TEST(CudaRotary, RefusesMorePairsThanAHeadMayHave) {
  const std::vector<double> frequencies(129, 0.5);
  Twin qkv = Twin::random(DType::Float32, {1, 2, 3 * 258}, 1);
  const auto make = [&](const auto& view) {
    return Rotary{.qkv = view(qkv), .heads = 1, .key_value_heads = 1, .frequencies = frequencies};
  };
  EXPECT_THROW(run_twins<Rotary>(make), std::logic_error);
}

TEST(CudaRotary, TurnsHeadsByGivenPositionsAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t head_size : {6, 64}) {
      Twin qkv = Twin::random(dtype, {3, 2, 4 * head_size}, 1);
      Twin positions = Twin::of(std::vector<int32_t>{5, 9, 0, 1, 700, 701}, {3, 2});
      const std::vector<double> frequencies = falling_frequencies(head_size / 2);
      run_twins<Rotary>([&](const auto& view) {
        return Rotary{
            .qkv = view(qkv), .heads = 2, .key_value_heads = 1, .frequencies = frequencies, .positions = view(positions)};
      });
      qkv.expect_near("rotary " + text(dtype), 2 * sum_unit(dtype), 2 * half_unit(dtype));
    }
}

// The largest factor is 1 + 0.2 ln(1 + 701 / 3), so that errors are twice those of a rotation.
TEST(CudaRotary, MultipliesQueriesByMoreAtLaterPositionsAsTheCpuInEveryOrder) {
  for (const DType dtype : kFloatTypes)
    for (const bool given : {false, true})
      in_every_order([&] {
        Twin qkv = Twin::random(dtype, {3, 2, 4 * 48}, 1);
        Twin positions = Twin::of(std::vector<int32_t>{5, 9, 0, 1, 700, 701}, {3, 2});
        const std::vector<double> frequencies = falling_frequencies(16);
        run_twins<Rotary>([&](const auto& view) {
          return Rotary{.qkv = view(qkv),
                        .heads = 2,
                        .key_value_heads = 1,
                        .frequencies = frequencies,
                        .positions = given ? view(positions) : decltype(view(positions)){},
                        .first = given ? 0 : 2,
                        .query_growth = 0.2,
                        .query_step = 3};
        });
        qkv.expect_near("rotary " + text(dtype), 4 * sum_unit(dtype), 4 * half_unit(dtype));
      });
}

TEST(CudaRotary, HeadsHaveNoOrder) {
  in_every_order([] {
    Twin qkv = Twin::random(DType::Float32, {2, 3, 4 * 64}, 1);
    const std::vector<double> frequencies = falling_frequencies(32);
    const auto make = [&](const auto& view) {
      return Rotary{.qkv = view(qkv), .heads = 2, .key_value_heads = 1, .frequencies = frequencies};
    };
    run_twins<Rotary>(make);
    qkv.expect_near("rotary", 2 * sum_unit(DType::Float32), 2 * half_unit(DType::Float32));
  });
}

// A block has several sequences, one after another.
TEST(CudaRotary, SequencesWithPositionsHaveNoOrder) {
  in_every_order([] {
    std::vector<int32_t> places(100);
    std::iota(places.begin(), places.end(), 7);
    Twin qkv = Twin::random(DType::Float32, {100, 1, 4 * 64}, 1), positions = Twin::of(places, {100, 1});
    const std::vector<double> frequencies = falling_frequencies(32);
    run_twins<Rotary>([&](const auto& view) {
      return Rotary{
          .qkv = view(qkv), .heads = 2, .key_value_heads = 1, .frequencies = frequencies, .positions = view(positions)};
    });
    qkv.expect_near("rotary", 2 * sum_unit(DType::Float32), 2 * half_unit(DType::Float32));
  });
}

}  // namespace
}  // namespace trivet::kernels::activation_test
