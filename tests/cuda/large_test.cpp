// Sizes are drawn at random and are so large that a launch has many blocks and each block many rounds. The fake device, which
// is slow, gets the same tests with small sizes.
#include <random>

#include "tests/cuda/twins.h"

namespace trivet::kernels::large_test {
namespace {

#if __has_include("shim.h")
constexpr int kDraws = 3;
constexpr int64_t kElements = 3000;
#else
constexpr int kDraws = 6;
constexpr int64_t kElements = 1'000'000;
#endif

// Draws the same numbers in every run.
class Draw {
 public:
  int64_t up_to(int64_t most) { return 1 + static_cast<int64_t>(bits_() % static_cast<uint64_t>(most)); }
  DType dtype() { return kFloatTypes[bits_() % 4]; }
  bool coin() { return bits_() % 2 == 0; }

 private:
  std::mt19937_64 bits_{12};
};

// Allows for the roundings of sums of `hidden` terms of magnitude about 1, amplified by the inverse deviation of rows, and for
// the rounding of the result.
void expect_near_the_cpus(const Twin& twin, DType dtype, int64_t hidden, const std::string& what) {
  twin.expect_near(what, (256 + static_cast<double>(hidden)) * sum_unit(dtype), 2 * half_unit(dtype) + 64 * sum_unit(dtype));
}

TEST(CudaLarge, NormsOfSumsAndTheirGradients) {
  Draw draw;
  for (int i = 0; i < kDraws; ++i) {
    const DType dtype = draw.dtype(), statistics = statistics_of(dtype);
    const int64_t hidden = draw.coin() ? 16 + 8 * draw.up_to(500) : 16 + draw.up_to(3000), samples = draw.up_to(3);
    const int64_t rows = samples * draw.up_to(std::max<int64_t>(kElements / hidden / samples, 1));
    const Shape shape{samples, rows / samples, hidden}, matrix{rows, hidden};
    const std::string what = text(dtype) + " " + to_string(shape);
    Twin addend = Twin::random(dtype, shape, 1), residual = Twin::random(dtype, shape, 2),
         gain = Twin::random(dtype, {hidden}, 3), bias = Twin::random(dtype, {hidden}, 4), dy = Twin::random(dtype, matrix, 5);
    Twin sum = Twin::poisoned(dtype, shape), dx = Twin::poisoned(dtype, matrix), dgain = Twin::poisoned(dtype, {hidden}),
         dbias = Twin::poisoned(dtype, {hidden}), mean = Twin::poisoned(statistics, {rows}),
         rstd = Twin::poisoned(statistics, {rows});
    const float rate = draw.coin() ? 0.1f : 0.0f;
    const auto forward = [&](const auto& view) {
      return LayerNorm{.x = view(sum).reshaped(matrix),
                       .gain = view(gain),
                       .bias = view(bias),
                       .y = view(addend).reshaped(matrix),
                       .mean = view(mean),
                       .rstd = view(rstd),
                       .sum = {.x = view(addend),
                               .residual = view(residual),
                               .out = view(sum),
                               .dropout = {.rate = rate, .key = 3, .step = 1, .first_sample = i}}};
    };
    run_twins<LayerNorm>(forward);
    sum.expect_same_bits("sum " + what);
    expect_near_the_cpus(addend, dtype, hidden, "layer_norm " + what);
    // Both sides continue with the CPU's statistics, so that the gradients of gain and bias have its bits.
    mean = Twin(mean.expected()), rstd = Twin(rstd.expected());
    const auto weight = [&](const auto& view) {
      return LayerNormBackwardWeight{.dy = view(dy),
                                     .x = view(sum).reshaped(matrix),
                                     .mean = view(mean),
                                     .rstd = view(rstd),
                                     .dgain = view(dgain),
                                     .dbias = view(dbias),
                                     .accumulate_gain = false,
                                     .accumulate_bias = false};
    };
    run_twins<LayerNormBackwardWeight>(weight);
    dgain.expect_same_bits("dgain " + what);
    dbias.expect_same_bits("dbias " + what);
    const auto input = [&](const auto& view) {
      return LayerNormBackwardInput{.dy = view(dy),
                                    .x = view(sum).reshaped(matrix),
                                    .gain = view(gain),
                                    .mean = view(mean),
                                    .rstd = view(rstd),
                                    .dx = view(dx),
                                    .residual = view(residual).reshaped(matrix)};
    };
    run_twins<LayerNormBackwardInput>(input);
    expect_near_the_cpus(dx, dtype, hidden, "layer_norm_backward_input " + what);
  }
}

// A flat group is updated in segments that begin anywhere.
TEST(CudaLarge, UpdatesAndNormOfAGroupInSegments) {
  Draw draw;
  for (int i = 0; i < kDraws; ++i) {
    const DType type = draw.coin() ? DType::BFloat16 : DType::Float32;
    const int64_t size = draw.up_to(kElements);
    Twin gradient = Twin::random(type, {size}, 1), master = Twin::random(DType::Float32, {size}, 2),
         first = Twin::random(DType::Float32, {size}, 3), second = Twin(HostTensor::filled(DType::Float32, {size}, 0.25)),
         copy = Twin::poisoned(DType::BFloat16, {size});
    Twin squares = Twin::of<int64_t>(std::vector<int64_t>(ExactSum::kWords, 0), {ExactSum::kWords});
    std::vector<int64_t> ends;
    for (int64_t end = 0; end < size;) ends.push_back(end = std::min(size, end + draw.up_to(size / 20 + 1)));
    const auto for_each_segment = [&](const auto& use) {
      int64_t begin = 0;
      for (const int64_t end : ends) {
        use(begin, end - begin);
        begin = end;
      }
    };
    const auto updates = [&](const auto& view) {
      std::vector<Adam> list;
      for_each_segment([&](int64_t begin, int64_t count) {
        const auto part = [&](Twin& twin) { return view(twin).slice(begin, count); };
        list.push_back({.master = part(master),
                        .moment1 = part(first),
                        .moment2 = part(second),
                        .copy_out = part(copy),
                        .gradient = part(gradient),
                        .weight_decay = begin % 2 == 0 ? 0.1 : 0.0,
                        .correction1 = bias_correction(0.9, 7),
                        .correction2 = bias_correction(0.999, 7)});
      });
      return list;
    };
    const auto terms = [&](const auto& view) {
      std::vector<Squares> list;
      for_each_segment([&](int64_t begin, int64_t count) {
        list.push_back({view(gradient).slice(begin, count), 0.5, kSumBlock});
      });
      return list;
    };
    run_twins(
        0,
        [&](const auto& view) {
          for (const Adam& one : updates(view)) cpu::compute(AdamUpdates{std::span(&one, 1)}, 1);
          for (const Squares& one : terms(view)) cpu::compute(OneSquare{{one.x, one.scale, one.block}, view(squares)}, 1);
        },
        [&](const auto& view, const cuda::Launch& launch) {
          cuda::compute(AdamUpdates{updates(view)}, launch);
          cuda::compute(SumOfSquares{terms(view), view(squares)}, launch);
        });
    for (const Twin* twin : {&master, &first, &second, &copy, &squares})
      twin->expect_same_bits(std::to_string(size) + " in " + std::to_string(ends.size()) + " segments");
  }
}

// cuBLASLt and oneDNN each sum in an order of their own. The tolerance allows for K roundings of sums of K terms of magnitude
// up to 1, and for one of the result.
TEST(CudaLarge, ProductsWithBiasAndGelu) {
  Draw draw;
  const auto edge = static_cast<int64_t>(std::sqrt(static_cast<double>(kElements)));
  for (int i = 0; i < kDraws; ++i) {
    const DType dtype = draw.coin() ? DType::BFloat16 : DType::Float32;
    const int64_t m = draw.up_to(edge), k = draw.up_to(edge), n = draw.coin() ? 8 * draw.up_to(edge / 8) : draw.up_to(edge);
    Twin a = Twin::random(dtype, {m, k}, 1), b = Twin::random(dtype, {n, k}, 2), bias = Twin::random(dtype, {n}, 3),
         out = Twin::poisoned(dtype, {m, n}), activated = Twin::poisoned(dtype, {m, n});
    const auto make = [&](const auto& view) {
      return Matmul{
          .a = view(a), .b = view(b), .out = view(out), .transpose_b = true, .bias = view(bias), .activated = view(activated)};
    };
    run_twins<Matmul>(make);
    const std::string what = text(dtype) + " " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    const double sum = static_cast<double>(k) * std::sqrt(static_cast<double>(k)) * 0x1p-24;
    out.expect_near(what, sum + half_unit(dtype), 2 * half_unit(dtype));
    // The slope of a GELU is at most 1.13; the tanh of an epilogue is accurate to 2^-11.
    activated.expect_near("gelu " + what, 2 * sum + 4 * half_unit(dtype), 4 * half_unit(dtype) + 0x1p-18);
  }
}

}  // namespace
}  // namespace trivet::kernels::large_test
