// Compares norms with the CPU's. The device adds up a row from different partial sums, so that statistics differ by roundings
// of the sum; gradients of parameters are summed in the CPU's order and have its bits.
#include <array>

#include "tests/cuda/twins.h"

namespace trivet::kernels::norm_test {
namespace {

struct Case {
  DType dtype;
  int64_t rows, hidden, elements_before;
};

// Cases for each way to process a row: by a warp, by a block of 128 or 512 threads in registers, and without keeping the row.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : kFloatTypes) {
    const int64_t pack = 16 / size_of(dtype);
    all.push_back({dtype, 0, 8, 0});
    all.push_back({dtype, 1, 1, 0});
    all.push_back({dtype, 9, 3 * pack, 0});
    all.push_back({dtype, 5, 33 * pack, 0});
    all.push_back({dtype, 5, 33 * pack, 1});
    all.push_back({dtype, 3, 130 * pack, 0});
    all.push_back({dtype, 2, 519 * pack, 0});
    all.push_back({dtype, 2, 515, 0});
  }
  return all;
}

std::string name(const Case& c) { return text(c.dtype) + " " + std::to_string(c.rows) + " x " + std::to_string(c.hidden); }

// Allow for the roundings of sums of `hidden` terms of magnitude about 1, and for the rounding of the result.
double relative(const Case& c) { return 2 * half_unit(c.dtype) + 32 * sum_unit(c.dtype); }
double absolute(const Case& c) { return 256 * sum_unit(c.dtype); }

struct Tensors {
  Twin x, dy, gain, bias, y, dx, mean, rstd;

  explicit Tensors(const Case& c)
      : x(Twin::random(c.dtype, {c.rows, c.hidden}, 1, c.elements_before)),
        dy(Twin::random(c.dtype, {c.rows, c.hidden}, 2)),
        gain(Twin::random(c.dtype, {c.hidden}, 3)),
        bias(Twin::random(c.dtype, {c.hidden}, 4)),
        y(Twin::poisoned(c.dtype, {c.rows, c.hidden}, c.elements_before)),
        dx(Twin::poisoned(c.dtype, {c.rows, c.hidden})),
        mean(Twin::poisoned(statistics_of(c.dtype), {c.rows})),
        rstd(Twin::poisoned(statistics_of(c.dtype), {c.rows})) {}
  // Draws the statistics that a backward pass reads, the same in both memories.
  void invent_statistics(const Case& c) {
    mean = Twin::random(statistics_of(c.dtype), {c.rows}, 5);
    HostTensor positive = HostTensor::random(statistics_of(c.dtype), {c.rows}, 6);
    for (int64_t row = 0; row < c.rows; ++row) positive.set(row, 1 + std::abs(positive.at(row)));
    rstd = Twin(positive);
  }
};

TEST(CudaNorm, ForwardIsNearTheCpus) {
  for (const Case& c : cases()) {
    Tensors t(c);
    const auto layer = [&](const auto& view) {
      return LayerNorm{.x = view(t.x),
                       .gain = view(t.gain),
                       .bias = view(t.bias),
                       .y = view(t.y),
                       .mean = view(t.mean),
                       .rstd = view(t.rstd)};
    };
    run_twins<LayerNorm>(layer);
    t.y.expect_near("layer_norm " + name(c), absolute(c), relative(c));
    t.mean.expect_near("mean " + name(c), absolute(c), 0);
    t.rstd.expect_near("rstd " + name(c), 0, 64 * sum_unit(c.dtype));
    const auto rms = [&](const auto& view) {
      return RmsNorm{.x = view(t.x), .gain = view(t.gain), .y = view(t.dx), .rstd = view(t.rstd)};
    };
    run_twins<RmsNorm>(rms);
    t.dx.expect_near("rms_norm " + name(c), absolute(c), relative(c));
    t.rstd.expect_near("rstd " + name(c), 0, 64 * sum_unit(c.dtype));
  }
}

// The rows are divided into samples, and y has no memory of its own: it overwrites the addend.
TEST(CudaNorm, OfASumHasTheBitsOfTheSumAndThenTheNorm) {
  for (const Case& c : cases())
    for (const DropoutSite& site : {DropoutSite{}, DropoutSite{.rate = 0.3f, .key = 5, .step = 7, .first_element = 4},
                                    DropoutSite{.rate = 0.3f, .key = 5, .first_element = 3}}) {
      const Shape shape{c.rows % 3 == 0 ? 3 : 1, c.rows % 3 == 0 ? c.rows / 3 : c.rows, c.hidden}, matrix{c.rows, c.hidden};
      Tensors t(c);
      Twin addend = Twin::random(c.dtype, shape, 8), residual = Twin::random(c.dtype, shape, 9, c.elements_before);
      Twin sum = Twin::poisoned(c.dtype, shape);
      const auto layer = [&](const auto& view, bool fused) {
        LayerNorm args{.x = view(sum).reshaped(matrix),
                       .gain = view(t.gain),
                       .bias = view(t.bias),
                       .y = view(addend).reshaped(matrix),
                       .mean = view(t.mean),
                       .rstd = view(t.rstd)};
        if (fused) args.sum = {.x = view(addend), .residual = view(residual), .out = view(sum), .dropout = site};
        return args;
      };
      run_twins<LayerNorm>([&](const auto& view) { return layer(view, true); });
      sum.expect_same_bits("sum " + name(c));
      addend.expect_near("layer_norm of a sum " + name(c), absolute(c), relative(c));
      // Computes the norm of the same sum again, in a pass of its own.
      const HostTensor fused[] = {addend.read(), t.mean.read(), t.rstd.read()};
      const TestLaunch launch(0);
      cuda::compute(layer([](Twin& twin) { return twin.device(); }, false), launch.launch());
      EXPECT_TRUE(fused[0] == addend.read() && fused[1] == t.mean.read() && fused[2] == t.rstd.read()) << name(c);

      Twin branch = Twin::random(c.dtype, shape, 10);
      const auto rms = [&](const auto& view, bool adds) {
        RmsNorm args{.x = view(sum).reshaped(matrix), .gain = view(t.gain), .y = view(t.y), .rstd = view(t.rstd)};
        if (adds) args.sum = {.x = view(branch), .residual = view(residual), .out = view(sum), .dropout = site};
        return args;
      };
      run_twins<RmsNorm>([&](const auto& view) { return rms(view, true); });
      sum.expect_same_bits("sum " + name(c));
      const HostTensor y = t.y.read();
      cuda::compute(rms([](Twin& twin) { return twin.device(); }, false), launch.launch());
      EXPECT_TRUE(y == t.y.read()) << name(c);
    }
}

TEST(CudaNorm, BackwardInputIsNearTheCpus) {
  for (const Case& c : cases())
    for (const bool accumulate : {false, true}) {
      Tensors t(c);
      t.invent_statistics(c);
      const auto target = [&] {
        return accumulate ? Twin::random(c.dtype, {c.rows, c.hidden}, 7) : Twin::poisoned(c.dtype, {c.rows, c.hidden});
      };
      Twin of_layer = target(), of_rms = target();
      const auto layer = [&](const auto& view) {
        return LayerNormBackwardInput{.dy = view(t.dy),
                                      .x = view(t.x),
                                      .gain = view(t.gain),
                                      .mean = view(t.mean),
                                      .rstd = view(t.rstd),
                                      .dx = view(of_layer),
                                      .residual = accumulate ? ConstTensorView(view(of_layer)) : ConstTensorView{}};
      };
      run_twins<LayerNormBackwardInput>(layer);
      of_layer.expect_near("layer_norm_backward_input " + name(c), absolute(c), relative(c));
      const auto rms = [&](const auto& view) {
        return RmsNormBackwardInput{.dy = view(t.dy),
                                    .x = view(t.x),
                                    .gain = view(t.gain),
                                    .rstd = view(t.rstd),
                                    .dx = view(of_rms),
                                    .residual = accumulate ? ConstTensorView(view(of_rms)) : ConstTensorView{}};
      };
      run_twins<RmsNormBackwardInput>(rms);
      of_rms.expect_near("rms_norm_backward_input " + name(c), absolute(c), relative(c));
    }
}

// The rows make several chunks, and more of them than one tile of the second pass holds.
TEST(CudaNorm, GradientsOfParametersHaveTheCpusBits) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, hidden] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {130, 36}, {67, 264}, {9000, 3}})
      for (const bool accumulate : {false, true}) {
        const Case c{dtype, rows, hidden, rows == 130 ? 1 : 0};
        Tensors t(c);
        t.invent_statistics(c);
        const auto target = [&](DType type, uint64_t seed) {
          return accumulate ? Twin::random(type, {hidden}, seed) : Twin::poisoned(type, {hidden});
        };
        const DType gain_type = dtype == DType::BFloat16 ? DType::Float32 : dtype;
        Twin dgain = target(gain_type, 8), dbias = target(dtype, 9), rms_gain = target(dtype, 10),
             only_bias = target(dtype, 11);
        const auto layer = [&](const auto& view) {
          return LayerNormBackwardWeight{.dy = view(t.dy),
                                         .x = view(t.x),
                                         .mean = view(t.mean),
                                         .rstd = view(t.rstd),
                                         .dgain = view(dgain),
                                         .dbias = view(dbias),
                                         .accumulate_gain = accumulate,
                                         .accumulate_bias = accumulate};
        };
        run_twins<LayerNormBackwardWeight>(layer);
        const auto rms = [&](const auto& view) {
          return RmsNormBackwardWeight{
              .dy = view(t.dy), .x = view(t.x), .rstd = view(t.rstd), .dgain = view(rms_gain), .accumulate = accumulate};
        };
        run_twins<RmsNormBackwardWeight>(rms);
        const auto bias = [&](const auto& view) {
          return BiasGradient{.dy = view(t.dy), .dbias = view(only_bias), .accumulate = accumulate};
        };
        run_twins<BiasGradient>(bias);
        for (const Twin* twin : {&dgain, &dbias, &rms_gain, &only_bias}) twin->expect_same_bits("gradient " + name(c));
      }
}

// Heads are summed by warps, whose lanes have the elements in turn.
TEST(CudaHeadNorm, IsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const std::array<int64_t, 4>& sizes :
         std::vector<std::array<int64_t, 4>>{{0, 1, 1, 8}, {3, 4, 2, 6}, {70, 2, 1, 64}, {130, 3, 3, 33}}) {
      const int64_t tokens = sizes[0], heads = sizes[1], groups = sizes[2], size = sizes[3];
      const Shape shape{1, tokens, (heads + 2 * groups) * size};
      Twin qkv = Twin::random(dtype, shape, 1), dout = Twin::random(dtype, shape, 2);
      Twin query_gain = Twin::random(dtype, {size}, 3), key_gain = Twin::random(dtype, {size}, 4);
      Twin out = Twin::poisoned(dtype, shape), dqkv = Twin::poisoned(dtype, shape);
      Twin rstd = Twin::poisoned(statistics_of(dtype), {tokens, heads + groups});
      Twin dgains = Twin::poisoned(statistics_of(dtype), {heads + groups, size});
      run_twins<HeadNorm>([&](const auto& view) {
        return HeadNorm{.qkv = view(qkv),
                        .query_gain = view(query_gain),
                        .key_gain = view(key_gain),
                        .out = view(out),
                        .rstd = view(rstd),
                        .heads = heads,
                        .key_value_heads = groups};
      });
      const Case tolerance{dtype, tokens, size, 0};
      out.expect_near("head_norm", absolute(tolerance), relative(tolerance));
      rstd.expect_near("rstd", absolute(tolerance), 64 * sum_unit(dtype));
      HostTensor positive = HostTensor::random(statistics_of(dtype), {tokens, heads + groups}, 6);
      for (int64_t e = 0; e < positive.elements(); ++e) positive.set(e, 1 + std::abs(positive.at(e)));
      rstd = Twin(positive);
      run_twins<HeadNormBackwardInput>([&](const auto& view) {
        return HeadNormBackwardInput{.dout = view(dout),
                                     .qkv = view(qkv),
                                     .query_gain = view(query_gain),
                                     .key_gain = view(key_gain),
                                     .rstd = view(rstd),
                                     .dqkv = view(dqkv),
                                     .heads = heads,
                                     .key_value_heads = groups};
      });
      dqkv.expect_near("head_norm_backward_input", absolute(tolerance), relative(tolerance));
      run_twins<HeadNormBackwardWeight>([&](const auto& view) {
        return HeadNormBackwardWeight{.dout = view(dout),
                                      .qkv = view(qkv),
                                      .rstd = view(rstd),
                                      .dgains = view(dgains),
                                      .heads = heads,
                                      .key_value_heads = groups};
      });
      dgains.expect_same_bits("head_norm_backward_weight");
    }
}

// The second pass puts chunks of 64 rows into shared memory, 256 (float64: 128) at a time, and must not overwrite them before
// they are summed.
TEST(CudaNorm, SumsOfManyChunksHaveNoOrder) {
  in_every_order([] {
    for (const auto& [dtype, rows] : {std::pair<DType, int64_t>{DType::Float32, 64 * 600 + 1}, {DType::Float64, 64 * 300}}) {
      Twin dy = Twin::random(dtype, {rows, 3}, 2), dbias = Twin::poisoned(dtype, {3});
      const auto bias = [&](const auto& view) {
        return BiasGradient{.dy = view(dy), .dbias = view(dbias), .accumulate = false};
      };
      run_twins<BiasGradient>(bias);
      dbias.expect_same_bits("bias_gradient " + text(dtype));
    }
  });
}

TEST(CudaNorm, RowsAndSumsHaveNoOrder) {
  in_every_order([] {
    const Case c{DType::Float32, 300, 640, 0};  // one block of 128 threads per row
    Tensors t(c);
    t.invent_statistics(c);
    Twin dgain = Twin::poisoned(DType::Float32, {c.hidden});
    const auto weight = [&](const auto& view) {
      return RmsNormBackwardWeight{
          .dy = view(t.dy), .x = view(t.x), .rstd = view(t.rstd), .dgain = view(dgain), .accumulate = false};
    };
    run_twins<RmsNormBackwardWeight>(weight);
    dgain.expect_same_bits("rms_norm_backward_weight");
    const auto input = [&](const auto& view) {
      return LayerNormBackwardInput{.dy = view(t.dy).row_range(0, 3),
                                    .x = view(t.x).row_range(0, 3),
                                    .gain = view(t.gain),
                                    .mean = view(t.mean).slice(0, 3),
                                    .rstd = view(t.rstd).slice(0, 3),
                                    .dx = view(t.dx).row_range(0, 3)};
    };
    run_twins<LayerNormBackwardInput>(input);
    t.dx.expect_near("layer_norm_backward_input", absolute(c), relative(c));
  });
}

}  // namespace
}  // namespace trivet::kernels::norm_test
