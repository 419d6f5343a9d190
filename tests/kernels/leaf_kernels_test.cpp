// Sums over tokens and products of rows have the same bits, however many ranks share the tokens.
#include "kernels/leaf_kernels.h"

#include <functional>
#include <stdexcept>

#include "kernels/leaf_sum.h"
#include "tests/kernels/every_way.h"

namespace trivet::kernels::leaf_kernels_test {
namespace {

constexpr int64_t kBatch = 3, kTokens = 32, kIn = 24, kOut = 40, kWords = 11;
constexpr int kLeaves = 8;

// A rank's rows of [kBatch, kTokens, ...].
HostTensor part_of(const HostTensor& whole, int rank, int ranks) {
  const Shape shape = whole.view().shape;
  const int64_t width = shape.elements() / (kBatch * kTokens), own = kTokens / ranks;
  HostTensor part(whole.view().dtype, {kBatch * own, width});
  for (int64_t row = 0; row < kBatch * own; ++row)
    for (int64_t col = 0; col < width; ++col)
      part.set(row * width + col, whole.at(((row / own) * kTokens + rank * own + row % own) * width + col));
  return part;
}

// What one rank of `ranks` computes from its rows; then the sums of all ranks in a tree.
using Compute = std::function<HostTensor(Kernels&, int rank, int ranks)>;
HostTensor sum_over_ranks(int ranks, const Compute& compute) {
  const auto cpu = make_cpu_kernels(2);
  MemoryMeter meter;
  Arena arena("leaves", host_allocator(), meter, MemoryCategory::Activations, 1 << 20);
  std::vector<HostTensor> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    LeafKernels kernels(*cpu, arena, kLeaves / ranks);
    kernels.set_rows(kBatch, kTokens / ranks);
    sums.push_back(compute(kernels, rank, ranks));
  }
  for (size_t step = 1; step < sums.size(); step *= 2)
    for (size_t i = 0; i + step < sums.size(); i += 2 * step) cpu->add(sums[i + step].view(), sums[i].view());
  EXPECT_EQ(arena.used_bytes(), 0);
  return sums[0];
}

// They are also near the sums without leaves, of at most 96 terms near 1: no token is left out, and none counted twice.
void expect_same_for_all_ranks(const char* what, const Compute& compute) {
  const HostTensor one = sum_over_ranks(1, compute), plain = compute(*make_cpu_kernels(1), 0, 1);
  for (int64_t e = 0; e < one.elements(); ++e) ASSERT_NEAR(one.at(e), plain.at(e), 1e-4) << what << " " << e;
  for (const int ranks : {2, 4, 8}) EXPECT_TRUE(sum_over_ranks(ranks, compute) == one) << what << " of " << ranks << " ranks";
}

const HostTensor kX = HostTensor::random(DType::Float32, {kBatch * kTokens, kIn}, 1);
const HostTensor kDy = HostTensor::random(DType::Float32, {kBatch * kTokens, kOut}, 2);
const HostTensor kStatistics = HostTensor::random(DType::Float32, {kBatch * kTokens, 1}, 3);

TEST(LeafKernels, SumsOverTokensDoNotDependOnTheRanks) {
  const auto start = [&](const Shape& shape) { return HostTensor::poisoned(DType::Float32, shape); };
  expect_same_for_all_ranks("weights", [&](Kernels& kernels, int rank, int ranks) {
    const HostTensor x = part_of(kX, rank, ranks), dy = part_of(kDy, rank, ranks);
    HostTensor out = start({kOut, kIn});
    kernels.matmul({.a = dy.view(), .b = x.view(), .out = out.view(), .transpose_a = true});
    return out;
  });
  expect_same_for_all_ranks("biases", [&](Kernels& kernels, int rank, int ranks) {
    const HostTensor dy = part_of(kDy, rank, ranks);
    HostTensor out = start({kOut});
    kernels.bias_gradient({.dy = dy.view(), .dbias = out.view(), .accumulate = false});
    return out;
  });
  expect_same_for_all_ranks("gains", [&](Kernels& kernels, int rank, int ranks) {
    const HostTensor x = part_of(kX, rank, ranks), rstd = part_of(kStatistics, rank, ranks);
    HostTensor out = start({3, kIn});
    const TensorView gain = out.view().slice(0, kIn);
    const ConstTensorView statistics = ConstTensorView(rstd.view()).reshaped({x.view().shape[0]});
    kernels.rms_norm_backward_weight({.dy = x.view(), .x = x.view(), .rstd = statistics, .dgain = gain, .accumulate = false});
    kernels.layer_norm_backward_weight({.dy = x.view(),
                                        .x = x.view(),
                                        .mean = statistics,
                                        .rstd = statistics,
                                        .dgain = out.view().slice(kIn, kIn),
                                        .dbias = out.view().slice(2 * kIn, kIn),
                                        .accumulate_gain = false,
                                        .accumulate_bias = false});
    return out;
  });
  expect_same_for_all_ranks("tables", [&](Kernels& kernels, int rank, int ranks) {
    const HostTensor dy = part_of(kDy, rank, ranks);
    std::vector<int32_t> tokens(dy.view().shape[0]);
    const int64_t own = kTokens / ranks;
    for (size_t row = 0; row < tokens.size(); ++row)
      tokens[row] = static_cast<int32_t>((row / own * kTokens + rank * own + row % own) * 7 % kWords);
    HostTensor out = start({kWords, kOut});
    kernels.embedding_backward({.tokens = {tokens.data(), DType::Int32, {kBatch, own}},
                                .dy = ConstTensorView(dy.view()).reshaped({kBatch, own, kOut}),
                                .dtable = out.view(),
                                .accumulate_table = false});
    return out;
  });
}

TEST(LeafKernels, AddToWhatIsThere) {
  const auto cpu = make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("leaves", host_allocator(), meter, MemoryCategory::Activations, 1 << 20);
  LeafKernels kernels(*cpu, arena, 4);
  kernels.set_rows(kBatch, kTokens);
  HostTensor sum(DType::Float32, {kOut}), both = HostTensor::random(DType::Float32, {kOut}, 5);
  const HostTensor before = both;
  kernels.bias_gradient({.dy = kDy.view(), .dbias = sum.view(), .accumulate = false});
  kernels.bias_gradient({.dy = kDy.view(), .dbias = both.view(), .accumulate = true});
  for (int64_t e = 0; e < kOut; ++e)
    EXPECT_EQ(both.at(e), static_cast<double>(static_cast<float>(before.at(e)) + static_cast<float>(sum.at(e))));
}

// The number of rows of a product is that of a leaf, whatever the rank has.
TEST(LeafKernels, ProductsOfRowsAreMadeInPieces) {
  const HostTensor weight = HostTensor::random(DType::Float32, {kOut, kIn}, 4);
  const auto rows = [&](int rank, int ranks) {
    const auto cpu = make_cpu_kernels(1);
    MemoryMeter meter;
    Arena arena("leaves", host_allocator(), meter, MemoryCategory::Activations, 1 << 20);
    LeafKernels kernels(*cpu, arena, kLeaves / ranks);
    kernels.set_rows(kBatch, kTokens / ranks);
    const HostTensor x = part_of(kX, rank, ranks);
    HostTensor out(DType::Float32, {x.view().shape[0], kOut});
    kernels.matmul({.a = x.view(), .b = weight.view(), .out = out.view(), .transpose_b = true});
    return out;
  };
  const HostTensor one = rows(0, 1);
  for (const int ranks : {2, 8})
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(rows(rank, ranks) == part_of(one, rank, ranks)) << rank << " of " << ranks;
    }
}

TEST(LeafSum, NeedsAPowerOfTwo) {
  const auto cpu = make_cpu_kernels(1);
  MemoryMeter meter;
  Arena arena("leaves", host_allocator(), meter, MemoryCategory::Activations, 1 << 16);
  LeafSum sum(*cpu, arena, DType::Float32, {4});
  for (int leaf = 0; leaf < 3; ++leaf) {
    cpu->zero(sum.begin_leaf());
    sum.end_leaf();
  }
  HostTensor out(DType::Float32, {4});
  EXPECT_THROW(sum.store(out.view(), false), std::logic_error);
  LeafKernels kernels(*cpu, arena, 4);
  EXPECT_THROW(kernels.set_rows(1, 6), std::logic_error);
}

}  // namespace
}  // namespace trivet::kernels::leaf_kernels_test
