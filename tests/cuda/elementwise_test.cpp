#include <fmt/format.h>

#include <cmath>

#include "kernels/verdict.h"
#include "tests/cuda/twins.h"

namespace trivet::kernels::elementwise_test {
namespace {

constexpr int64_t kSizes[] = {0, 1, 7, 1024, 2051};
constexpr int64_t kOffsets[] = {0, 1};

TEST(CudaElementwise, ZeroesAnyBytes) {
  for (const int64_t size : kSizes)
    for (const int64_t offset : kOffsets) {
      Twin out = Twin::random(DType::BFloat16, {size}, 1, offset);
      run_twins(
          0, [&](const auto& view) { cpu::compute(Zero{view(out)}, 1); },
          [&](const auto& view, const cuda::Launch& launch) { cuda::compute(Zero{view(out)}, launch); });
      out.expect_same_bits("zero");
    }
}

// Random bits, so that infinities, subnormals, rounding boundaries and NaNs with any payload are among them.
HostTensor any_bits(DType dtype, int64_t size) {
  HostTensor tensor(dtype, {size});
  auto* bytes = static_cast<unsigned char*>(tensor.view().data);
  for (int64_t b = 0; b < tensor.view().bytes(); ++b)
    bytes[b] = static_cast<unsigned char>(philox(3, static_cast<uint64_t>(b) / 4, 0)[b % 4] >> 11);
  return tensor;
}

TEST(CudaElementwise, ConvertsBetweenAllTypes) {
  for (const DType from_type : kFloatTypes)
    for (const DType to_type : kFloatTypes)
      for (const int64_t size : kSizes)
        for (const int64_t offset : kOffsets) {
          Twin from(any_bits(from_type, size), offset), out = Twin::poisoned(to_type, {size});
          run_twins(
              0,
              [&](const auto& view) {
                cpu::compute(Copy{view(from), view(out)}, 1);
              },
              [&](const auto& view, const cuda::Launch& launch) {
                cuda::compute(Copy{view(from), view(out)}, launch);
              });
          out.expect_near(text(from_type) + " to " + text(to_type), 0, 0);
        }
}

TEST(CudaElementwise, CopiesIntegersToo) {
  Twin from = Twin::of<int32_t>({1, -2, 3, 4, 5}, {5}), out = Twin::of<int32_t>({0, 0, 0, 0, 0}, {5});
  run_twins(
      0,
      [&](const auto& view) {
        cpu::compute(Copy{view(from), view(out)}, 1);
      },
      [&](const auto& view, const cuda::Launch& launch) {
        cuda::compute(Copy{view(from), view(out)}, launch);
      });
  out.expect_same_bits("copy of int32");
}

TEST(CudaElementwise, AddsAndScales) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes)
      for (const int64_t offset : kOffsets) {
        Twin from = Twin::random(dtype, {size}, 1, offset), out = Twin::random(dtype, {size}, 2);
        run_twins(
            0,
            [&](const auto& view) {
              cpu::compute(Add{view(from), view(out)}, 1);
              cpu::compute(Scale{view(out), 1.0 / 3}, 1);
            },
            [&](const auto& view, const cuda::Launch& launch) {
              cuda::compute(Add{view(from), view(out)}, launch);
              cuda::compute(Scale{view(out), 1.0 / 3}, launch);
            });
        out.expect_same_bits("add and scale " + text(dtype));
      }
}

TEST(CudaElementwise, AddsIntegersThatWrap) {
  Twin from = Twin::of<int64_t>({INT64_MAX, -5, 7}, {3}), out = Twin::of<int64_t>({2, 3, -9}, {3});
  run_twins(
      0,
      [&](const auto& view) {
        cpu::compute(Add{view(from), view(out)}, 1);
      },
      [&](const auto& view, const cuda::Launch& launch) {
        cuda::compute(Add{view(from), view(out)}, launch);
      });
  out.expect_same_bits("add of int64");
}

TEST(CudaElementwise, AddsABiasToRows) {
  for (const DType dtype : kFloatTypes)
    for (const DType x_type : {dtype, DType::Float32})
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {5, 13}, {70, 64}, {3, 4104}}) {
        if (dtype == DType::Float64 && x_type != dtype) continue;
        Twin x = Twin::random(x_type, {rows, cols}, 1), bias = Twin::random(dtype, {cols}, 2, rows % 2);
        Twin out = Twin::poisoned(dtype, {rows, cols});
        const auto make = [&](const auto& view) { return AddBias{.x = view(x), .bias = view(bias), .out = view(out)}; };
        run_twins<AddBias>(make);
        out.expect_same_bits("add_bias " + text(dtype));
      }
}

TEST(CudaElementwise, AddsNoBiasInPlace) {
  Twin x = Twin::random(DType::BFloat16, {3, 5}, 1);
  const auto make = [&](const auto& view) { return AddBias{.x = view(x), .out = view(x)}; };
  run_twins<AddBias>(make);
  x.expect_same_bits("add_bias without bias");
}

TEST(CudaElementwise, SumsSquaresExactlyAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : {0, 1, 17, 255, 256, 2048, 5003})
      for (const int64_t block : {1, 64, 256}) {
        if (block == 1 && size > 300) continue;
        Twin x = Twin::random(dtype, {size}, 5, size % 3);
        Twin sum = Twin::of<int64_t>(std::vector<int64_t>(ExactSum::kWords, 7), {ExactSum::kWords}), scale = number_of(3.0);
        run_twins(
            0,
            [&](const auto& view) {
              cpu::compute(OneSquare{{view(x), number(view, scale), block}, view(sum)}, 1);
            },
            [&](const auto& view, const cuda::Launch& launch) {
              cuda::compute(OneSquare{{view(x), number(view, scale), block}, view(sum)}, launch);
            });
        sum.expect_same_bits("sum_of_squares " + text(dtype) + " " + std::to_string(size));
      }
}

// There are runs of one type and mixed types, empty tensors, and more tensors than one launch takes; each has its block and
// scale.
TEST(CudaElementwise, SumsSquaresOfManyTensorsAsOfEach) {
  std::vector<std::unique_ptr<Twin>> all;
  for (int64_t i = 0; i < 200; ++i)
    all.push_back(std::make_unique<Twin>(
        Twin::random(i < 150 ? DType::BFloat16 : kFloatTypes[i % 4], {i % 5 == 0 ? 0 : i * 37 % 700}, 5, i % 3)));
  const auto terms = [&](const auto& view) {
    std::vector<Squares> list;
    for (size_t i = 0; i < all.size(); ++i)
      list.push_back({view(*all[i]), 1.0 + static_cast<double>(i), i % 2 == 0 ? 256 : 64});
    return list;
  };
  for (const size_t used : {size_t{0}, size_t{1}, size_t{3}, all.size()}) {
    Twin sum = Twin::of<int64_t>(std::vector<int64_t>(ExactSum::kWords, 7), {ExactSum::kWords});
    run_twins(
        0,
        [&](const auto& view) {
          const std::vector<Squares> list = terms(view);
          for (size_t i = 0; i < used; ++i) cpu::compute(OneSquare{{list[i].x, list[i].scale, list[i].block}, view(sum)}, 1);
        },
        [&](const auto& view, const cuda::Launch& launch) {
          const std::vector<Squares> list = terms(view);
          cuda::compute(SumOfSquares{std::span(list).first(used), view(sum)}, launch);
        });
    sum.expect_same_bits("sum_of_squares of " + std::to_string(used));
  }
}

TEST(CudaElementwise, CountsBlocksThatAreNotFinite) {
  HostTensor values = HostTensor::random(DType::Float32, {1000}, 1);
  values.set(300, NAN);
  values.set(900, INFINITY);
  Twin x(values), sum = Twin::of<int64_t>(std::vector<int64_t>(ExactSum::kWords, 0), {ExactSum::kWords});
  run_twins(
      0,
      [&](const auto& view) {
        cpu::compute(OneSquare{{view(x), 1.0, 256}, view(sum)}, 1);
      },
      [&](const auto& view, const cuda::Launch& launch) {
        cuda::compute(OneSquare{{view(x), 1.0, 256}, view(sum)}, launch);
      });
  sum.expect_same_bits("sum_of_squares");
}

Twin exact_sum_of(std::initializer_list<double> terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return Twin::of<int64_t>({sum.words().begin(), sum.words().end()}, {ExactSum::kWords});
}

TEST(CudaElementwise, DividesByANorm) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes) {
      Twin out = Twin::random(dtype, {size}, 3, size % 2), square_sum = exact_sum_of({2.0, 0.25});
      run_twins(
          0,
          [&](const auto& view) {
            const double norm = std::sqrt(ExactSum::value_of(view(square_sum).template as<int64_t>()));
            cpu::compute(Scale{view(out), 1 / (norm + 1e-3)}, 1);
          },
          [&](const auto& view, const cuda::Launch& launch) {
            cuda::compute(DivideByNorm{view(out), view(square_sum), 1e-3}, launch);
          });
      out.expect_same_bits("divide_by_norm " + text(dtype));
    }
}

TEST(CudaElementwise, SumsLossesExactly) {
  Twin losses = Twin::of<double>({1e-20, 3, 1, 4.5, 2, 2, -7e10, 1, 0, INFINITY, 5, 4}, {4, 1 + kLossCounts});
  constexpr int64_t kWords = ExactSum::kWords + kLossCounts;
  Twin words = Twin::of<int64_t>(std::vector<int64_t>(kWords, 2), {kWords});
  run_twins(
      0, [&](const auto& view) { cpu::compute(SumLosses{.losses = view(losses), .words = view(words)}, 1); },
      [&](const auto& view, const cuda::Launch& launch) {
        cuda::compute(SumLosses{.losses = view(losses), .words = view(words)}, launch);
      });
  words.expect_same_bits("sum_losses");
}

TEST(CudaElementwise, SumsFurtherNumbersOfLossesExactly) {
  Twin losses = Twin::of<double>({1e-20, 3, 1, 0.5, -8, 4.5, 2, 2, 1e18, 1e-9, -7e10, 1, 0, -1e18, INFINITY}, {3, 5});
  const int64_t size = SumLosses::loss_words(2);
  Twin words = Twin::of<int64_t>(std::vector<int64_t>(static_cast<size_t>(size), 2), {size});
  run_twins(
      0, [&](const auto& view) { cpu::compute(SumLosses{.losses = view(losses), .words = view(words)}, 1); },
      [&](const auto& view, const cuda::Launch& launch) {
        cuda::compute(SumLosses{.losses = view(losses), .words = view(words)}, launch);
      });
  words.expect_same_bits("sum_losses with further numbers");
}

TEST(CudaElementwise, JudgesGradients) {
  struct Case {
    double clipping, square;
    int64_t targets = 12;
    bool check_finite = true;
  };
  std::vector<Case> cases;
  for (const double clipping : {0.0, 0.5})
    for (const double square : {9.0, static_cast<double>(INFINITY), 0.0}) cases.push_back({clipping, square});
  cases.insert(cases.end(), {{0.5, 9.0, 0}, {0.0, 0.0, 0}, {0.5, INFINITY, 0, false}, {0.5, INFINITY, 12, false}});
  for (const Case& c : cases) {
    Twin square_sum = exact_sum_of({c.square}), verdict = Twin::poisoned(DType::Float64, {kVerdictSize});
    std::vector<int64_t> words(ExactSum::kWords + 1, 0);
    words.back() = c.targets;
    Twin losses = Twin::of<int64_t>(words, {ExactSum::kWords + 1});
    const auto make = [&](const auto& view) {
      return JudgeGradients{.square_sum = view(square_sum),
                            .losses = view(losses),
                            .verdict = view(verdict),
                            .unit = 64,
                            .clipping = c.clipping,
                            .check_finite = c.check_finite};
    };
    run_twins(
        0, [&](const auto& view) { cpu::compute(make(view), 1); },
        [&](const auto& view, const cuda::Launch& launch) { cuda::compute(make(view), launch); });
    verdict.expect_near("judge_gradients", 0, 0);
    EXPECT_EQ(verdict.read().at(kApply) != 0, c.targets > 0 && (c.square < INFINITY || !c.check_finite));
  }
}

HostTensor values_with_misfits(DType dtype, int64_t size) {
  HostTensor values = HostTensor::random(dtype, {size}, 4);
  for (int64_t e = 0; e < size; e += 97) values.set(e, e % 2 == 0 ? NAN : 60000.0);
  for (int64_t e = 5; e < size; e += 8) values.set(e, e % 16 == 5 ? -0.0 : 0.0);
  return values;
}

TEST(CudaFixedPoint, AddsStoresAndRoundsAsTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const int64_t size : kSizes)
      for (const int64_t offset : kOffsets) {
        if (offset != 0 && size < 1000) continue;
        Twin x(values_with_misfits(dtype, size), offset), refused = Twin::of<int64_t>({10}, {1}), tenth = number_of(0.1);
        std::vector<int64_t> before(size);
        std::iota(before.begin(), before.end(), int64_t{-5} << 40);
        Twin sum = Twin::of(before, {size}), stored = Twin::of(before, {size});
        run_twins(
            0,
            [&](const auto& view) {
              cpu::compute(FixedPointAdd{view(x), number(view, tenth), 100, view(sum), view(refused)}, 1);
              cpu::compute(FixedPointStore{view(x), number(view, tenth), 100, view(stored), view(refused)}, 1);
            },
            [&](const auto& view, const cuda::Launch& launch) {
              cuda::compute(FixedPointAdd{view(x), number(view, tenth), 100, view(sum), view(refused)}, launch);
              cuda::compute(FixedPointStore{view(x), number(view, tenth), 100, view(stored), view(refused)}, launch);
            });
        sum.expect_same_bits("fixed_point_add " + text(dtype));
        stored.expect_same_bits("fixed_point_store " + text(dtype));
        refused.expect_same_bits("refused");
        for (const DType to : kFloatTypes) {
          Twin read = Twin::poisoned(to, {size}), rounded = Twin::poisoned(to, {size}, offset);
          run_twins(
              0,
              [&](const auto& view) {
                cpu::compute(FixedPointRead{view(sum), view(read)}, 1);
                cpu::compute(FixedPointRound{view(x), number(view, tenth), 100, view(rounded), view(refused)}, 1);
              },
              [&](const auto& view, const cuda::Launch& launch) {
                cuda::compute(FixedPointRead{view(sum), view(read)}, launch);
                cuda::compute(FixedPointRound{view(x), number(view, tenth), 100, view(rounded), view(refused)}, launch);
              });
          read.expect_same_bits("fixed_point_read " + text(to));
          rounded.expect_same_bits("fixed_point_round " + text(dtype) + " to " + text(to));
          refused.expect_same_bits("refused");
        }
      }
}

TEST(CudaQuantize, WritesTheCpusBytesAndReadsThem) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const int bits : {8, 4})
      for (const auto& [blocks, before] : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {3, 0}, {3, 1}, {301, 0}}) {
        const std::string what = fmt::format("{} in {} bits, {} blocks after {} elements", text(dtype), bits, blocks, before);
        const int64_t size = blocks * kQuantizedBlock, bytes = quantized_bytes(size, bits);
        HostTensor values = HostTensor::random(dtype, {size}, 5);
        for (int64_t e = kQuantizedBlock; e < 2 * kQuantizedBlock && e < size; ++e) values.set(e, 0);
        Twin x(values, before), packed = Twin::of(std::vector<uint8_t>(bytes, 17), {bytes});
        Twin out = Twin::poisoned(dtype, {size}, before), sum = Twin::random(dtype, {size}, 6, before);
        run_twins(
            0,
            [&](const auto& view) {
              cpu::compute(Quantize{view(x), view(packed), bits}, 1);
              cpu::compute(Dequantize{view(packed), view(out), bits, false}, 1);
              cpu::compute(Dequantize{view(packed), view(sum), bits, true}, 1);
            },
            [&](const auto& view, const cuda::Launch& launch) {
              cuda::compute(Quantize{view(x), view(packed), bits}, launch);
              cuda::compute(Dequantize{view(packed), view(out), bits, false}, launch);
              cuda::compute(Dequantize{view(packed), view(sum), bits, true}, launch);
            });
        packed.expect_same_bits("quantize " + what);
        out.expect_same_bits("dequantize " + what);
        sum.expect_same_bits("dequantize and add " + what);
      }
}

// Infinities, subnormals and NaNs with any payload are among the values, so most blocks become NaN.
TEST(CudaQuantize, BlocksThatAreNotFiniteBecomeNaN) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const int bits : {8, 4}) {
      const int64_t size = 40 * kQuantizedBlock;
      HostTensor values = any_bits(dtype, size);
      for (int64_t e = 0; e < size / 2; ++e)
        if (!std::isfinite(values.at(e))) values.set(e, 0x1p-110);
      Twin x(values), packed = Twin::of(std::vector<uint8_t>(quantized_bytes(size, bits)), {quantized_bytes(size, bits)});
      Twin out = Twin::poisoned(dtype, {size});
      run_twins(
          0,
          [&](const auto& view) {
            cpu::compute(Quantize{view(x), view(packed), bits}, 1);
            cpu::compute(Dequantize{view(packed), view(out), bits, false}, 1);
          },
          [&](const auto& view, const cuda::Launch& launch) {
            cuda::compute(Quantize{view(x), view(packed), bits}, launch);
            cuda::compute(Dequantize{view(packed), view(out), bits, false}, launch);
          });
      out.expect_near(fmt::format("{} in {} bits", text(dtype), bits), 0, 0);
    }
}

// Normal numbers go through log, cos and sin, which differ on a device by two units in the last place of a double, and so now
// and then by one of the tensor's type.
TEST(CudaInitialize, DrawsTheCpusValues) {
  for (const Init::Kind kind : {Init::Kind::Zeros, Init::Kind::Ones, Init::Kind::Normal, Init::Kind::Uniform})
    for (const DType dtype : kFloatTypes)
      for (const int64_t size : kSizes)
        for (const int64_t first : {0, 3, 4}) {
          Twin out = Twin::poisoned(dtype, {size}, size % 2);
          const Init init{kind, 0.02};
          run_twins(
              0,
              [&](const auto& view) {
                cpu::compute(Initialize{view(out), init, 99, first}, 1);
              },
              [&](const auto& view, const cuda::Launch& launch) {
                cuda::compute(Initialize{view(out), init, 99, first}, launch);
              });
          if (kind == Init::Kind::Normal)
            out.expect_near("initialize " + text(dtype), 1e-18, std::max(2 * half_unit(dtype), 1e-14));
          else
            out.expect_same_bits("initialize " + text(dtype));
        }
}

TEST(CudaElementwise, ResultsHaveNoOrder) {
  in_every_order([] {
    Twin x = Twin::random(DType::Float32, {3000}, 5);
    Twin sum = Twin::of<int64_t>(std::vector<int64_t>(ExactSum::kWords, 0), {ExactSum::kWords});
    Twin refused = Twin::of<int64_t>({0}, {1}), fixed = Twin::of(std::vector<int64_t>(3000, 1), {3000});
    Twin quotient = Twin::random(DType::Float32, {3000}, 6), square_sum = exact_sum_of({5.0});
    run_twins(
        0,
        [&](const auto& view) {
          cpu::compute(OneSquare{{view(x), 1, 256}, view(sum)}, 1);
          cpu::compute(FixedPointAdd{view(x), 1, 0.5, view(fixed), view(refused)}, 1);
          cpu::compute(Scale{view(quotient), 1 / (std::sqrt(5.0) + 1.0)}, 1);
        },
        [&](const auto& view, const cuda::Launch& launch) {
          cuda::compute(OneSquare{{view(x), 1, 256}, view(sum)}, launch);
          cuda::compute(FixedPointAdd{view(x), 1, 0.5, view(fixed), view(refused)}, launch);
          cuda::compute(DivideByNorm{view(quotient), view(square_sum), 1.0}, launch);
        });
    for (const Twin* twin : {&sum, &refused, &fixed, &quotient}) twin->expect_same_bits("any order");
  });
}

}  // namespace
}  // namespace trivet::kernels::elementwise_test
