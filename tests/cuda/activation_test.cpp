// Compares activations, dropout and rotary embedding with the CPU's.
#include <limits>

#include "tests/cuda/twins.h"

namespace trivet::kernels::activation_test {
namespace {

// Exponentials and divisions of float32 are the device's own: each is off by up to 2 units in the last place, and a result
// takes a handful of them.
double relative(DType dtype) { return 2 * half_unit(dtype) + (dtype == DType::Float64 ? 0x1p-48 : 0x1p-19); }
double absolute(DType dtype) { return dtype == DType::Float64 ? 1e-15 : 1e-6; }

constexpr int64_t kSizes[] = {0, 1, 9, 2056};

Twin wide(DType dtype, const Shape& shape, uint64_t seed, int64_t elements_before = 0) {
  HostTensor values = HostTensor::random(dtype, shape, seed);
  for (int64_t e = 0; e < values.elements(); ++e) values.set(e, values.at(e) * (e % 7 == 0 ? 100 : 6));
  return Twin(values, elements_before);
}

TEST(CudaActivation, GeluIsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes)
      for (const int64_t offset : {0, 1}) {
        Twin x = wide(dtype, {size}, 1, offset), dy = Twin::random(dtype, {size}, 2);
        Twin y = Twin::poisoned(dtype, {size}), dx = Twin::poisoned(dtype, {size});
        run_twins<Gelu>([&](const auto& view) { return Gelu{view(x), view(y)}; });
        y.expect_near("gelu " + text(dtype), absolute(dtype), relative(dtype));
        run_twins<GeluBackward>([&](const auto& view) { return GeluBackward{view(dy), view(x), view(dx)}; });
        dx.expect_near("gelu_backward " + text(dtype), absolute(dtype), relative(dtype));
      }
}

TEST(CudaActivation, ReluIsTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes)
      for (const int64_t offset : {0, 1}) {
        Twin x = wide(dtype, {size}, 1, offset), dy = Twin::random(dtype, {size}, 2);
        Twin y = Twin::poisoned(dtype, {size}), dx = Twin::poisoned(dtype, {size});
        run_twins<Relu>([&](const auto& view) { return Relu{view(x), view(y)}; });
        y.expect_same_bits("relu " + text(dtype));
        run_twins<ReluBackward>([&](const auto& view) { return ReluBackward{view(dy), view(x), view(dx)}; });
        dx.expect_same_bits("relu_backward " + text(dtype));
      }
}

TEST(CudaActivation, SwiGluIsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 4}, {1, 1}, {3, 5}, {7, 64}, {2, 1032}}) {
      Twin gate_up = wide(dtype, {rows, 2 * width}, 1, rows == 3 ? 1 : 0), dy = Twin::random(dtype, {rows, width}, 2);
      Twin y = Twin::poisoned(dtype, {rows, width}), dgate_up = Twin::poisoned(dtype, {rows, 2 * width});
      for (const bool gelu : {false, true}) {
        run_twins<SwiGlu>([&](const auto& view) { return SwiGlu{view(gate_up), view(y), gelu}; });
        y.expect_near("swiglu " + text(dtype), (gelu ? 100 : 1) * absolute(dtype), relative(dtype));
        run_twins<SwiGluBackward>([&](const auto& view) {
          return SwiGluBackward{view(dy), view(gate_up), view(dgate_up), gelu};
        });
        dgate_up.expect_near("swiglu_backward " + text(dtype), 100 * absolute(dtype), relative(dtype));
      }
    }
}

// x is [B, ...]. Sizes are multiples of the four random words of a pack, or odd, and parts of samples begin anywhere.
TEST(CudaDropout, MasksAndSumsAreTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [samples, size] : {std::pair<int64_t, int64_t>{0, 8}, {1, 1}, {3, 40}, {2, 33}, {2, 1032}})
      for (const auto& [first_element, second] : {std::pair<int64_t, int64_t>{0, 0}, {2, 0}, {3, 0}, {8, 0}, {8, 5}, {8, 16}})
        for (const float rate : {0.0f, 0.1f}) {
          if (rate == 0 && first_element != 0) continue;
          Twin x = Twin::random(dtype, {samples, size}, 1), residual = Twin::random(dtype, {samples, size}, 2);
          Twin alone = Twin::poisoned(dtype, {samples, size}), dx = Twin::poisoned(dtype, {samples, size});
          Twin step = number_of(5);
          const auto site = [&](const auto& view) {
            return DropoutSite{.rate = rate,
                               .key = 77,
                               .step = number(view, step),
                               .first_sample = 3,
                               .first_element = first_element,
                               .second = second,
                               .skipped = 4 * second};
          };
          const auto add = [&](const auto& view) {
            return DropoutAdd{.x = view(x), .residual = view(residual), .out = view(residual), .dropout = site(view)};
          };
          run_twins<DropoutAdd>(add);
          const auto drop = [&](const auto& view) {
            return DropoutAdd{.x = view(x), .out = view(alone), .dropout = site(view)};
          };
          run_twins<DropoutAdd>(drop);
          const auto back = [&](const auto& view) {
            return DropoutBackward{.dy = view(x), .dx = view(dx), .dropout = site(view)};
          };
          run_twins<DropoutBackward>(back);
          for (const Twin* twin : {&residual, &alone, &dx})
            twin->expect_same_bits("dropout " + text(dtype) + " " + std::to_string(size) + " from " +
                                   std::to_string(first_element) + " and " + std::to_string(second));
        }
}

// Zeros of both signs, and numbers whose quotients overflow, are subnormal, or are too small for a fused remainder to be exact.
TEST(CudaDropout, DividesExtremeNumbersAsTheCpu) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double extremes[] = {0.0,        -0.0,    0x1p-149, -0x1.8p-140, 0x1.2p-127, -0x1p-126,  0x1.6p-110,
                             -0x1.4p-81, 0x1p-80, 0x1p100,  -0x1.8p100,  0x1.aep127, -kInfinite, kInfinite};
  for (const DType dtype : kFloatTypes)
    for (const float rate : {0x1p-24f, 0.1f, 0.7f, 1 - 0x1p-24f}) {
      HostTensor values = HostTensor::random(dtype, {2, 512}, 1);
      for (int64_t e = 0; e < 512; e += 3) values.set(e, extremes[e / 3 % std::size(extremes)]);
      Twin x(values), out = Twin::poisoned(dtype, {2, 512});
      run_twins<DropoutBackward>([&](const auto& view) {
        return DropoutBackward{.dy = view(x), .dx = view(out), .dropout = {.rate = rate, .key = 77, .step = 5}};
      });
      out.expect_same_bits("dropout " + text(dtype) + " " + std::to_string(rate));
    }
}

TEST(CudaActivation, ASoftCapIsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes)
      for (const int64_t offset : {0, 1}) {
        Twin x = wide(dtype, {size}, 1, offset), y = Twin::poisoned(dtype, {size});
        run_twins<SoftCap>([&](const auto& view) { return SoftCap{view(x), view(y), 30}; });
        y.expect_near("soft_cap " + text(dtype), absolute(dtype), relative(dtype));
        run_twins<SoftCap>([&](const auto& view) { return SoftCap{view(x), view(x), 0.5}; });
        x.expect_near("soft_cap " + text(dtype), absolute(dtype), relative(dtype));
      }
}

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
