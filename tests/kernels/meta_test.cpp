#include <gmock/gmock.h>

#include "tests/kernels/every_way.h"

namespace trivet::kernels::meta_test {
namespace {

TensorView nothing(DType dtype, const Shape& shape) { return {nullptr, dtype, shape}; }
constexpr DType kF32 = DType::Float32, kBf16 = DType::BFloat16;

TEST(MetaKernels, CountsProductsAndAttentionByTheirFormulas) {
  const auto meta = make_meta_kernels();
  EXPECT_EQ(meta->device(), Device::Meta);
  meta->matmul({.a = nothing(kBf16, {7, 5}),
                .b = nothing(kBf16, {3, 5}),
                .out = nothing(kF32, {7, 3}),
                .transpose_b = true,
                .accumulate = true,
                .bias = {}});
  EXPECT_EQ(meta->counters().flops, 2.0 * 7 * 3 * 5);
  EXPECT_EQ(meta->counters().bytes, 2.0 * (7 * 5 + 3 * 5) + 2 * 4.0 * 7 * 3);
  EXPECT_EQ(meta->counters().launches, 1);

  // B 2, S 16, N 4, G 2, D 8
  const auto before = meta->counters();
  const TensorView qkv = nothing(kBf16, {2, 16, 64}), out = nothing(kBf16, {2, 16, 32}), lse = nothing(kF32, {2, 4, 16});
  meta->attention({.qkv = qkv, .out = out, .log_sum_exp = lse, .heads = 4, .key_value_heads = 2, .dropout = {}});
  const double forward = 4.0 * 16 * 16 * 4 * 8 * 2 / 2;
  EXPECT_EQ(meta->counters().flops - before.flops, forward);
  meta->attention_backward(
      {.dout = out, .qkv = qkv, .out = out, .log_sum_exp = lse, .dqkv = qkv, .heads = 4, .key_value_heads = 2, .dropout = {}});
  EXPECT_EQ(meta->counters().flops - before.flops, 3.5 * forward);
  EXPECT_EQ(meta->counters().launches, 3);
}

// 12 rows of 3 experts. Where the rows are does not matter, but each expert's matrix is read or written.
TEST(MetaKernels, CountsProductsOfExpertsByTheirRows) {
  const TensorView a = nothing(kBf16, {12, 5}), dy = nothing(kBf16, {12, 7}), ends = nothing(DType::Int32, {3, 2});
  const auto counted = [&](const auto& product) {
    const auto meta = make_meta_kernels();
    product(*meta);
    EXPECT_EQ(meta->counters().flops, 2.0 * 12 * 7 * 5);
    EXPECT_EQ(meta->counters().launches, 1);
    return meta->counters().bytes;
  };
  const auto forward = [&](bool transpose_b) {
    return counted([&](Kernels& meta) {
      const TensorView b = nothing(kBf16, transpose_b ? Shape{3, 7, 5} : Shape{3, 5, 7});
      meta.grouped_matmul({.a = a, .b = b, .ends = ends, .out = dy, .transpose_b = transpose_b});
    });
  };
  EXPECT_EQ(forward(false), 2.0 * (12 * 5 + 12 * 7 + 3 * 35) + 4 * 6);
  EXPECT_EQ(forward(true), forward(false));
  const auto gradient = [&](bool accumulate) {
    return counted([&](Kernels& meta) {
      meta.grouped_gradient(
          {.a = a, .b = dy, .ends = ends, .leaves = 2, .out = nothing(kF32, {3, 5, 7}), .accumulate = accumulate});
    });
  };
  EXPECT_EQ(gradient(false), 2.0 * (12 * 5 + 12 * 7) + 4 * 3 * 35 + 4 * 6);
  EXPECT_EQ(gradient(true), gradient(false) + 4 * 3 * 35);
}

TEST(MetaKernels, CountsASumThatANormMakesAsOnePass) {
  const auto meta = make_meta_kernels();
  const TensorView x = nothing(kBf16, {6, 8}), gain = nothing(kBf16, {8}), row = nothing(kF32, {6});
  meta->rms_norm({.x = x, .gain = gain, .y = x, .rstd = row, .sum = {.x = x, .residual = x, .out = x}});
  EXPECT_EQ(meta->counters().launches, 1);
  EXPECT_EQ(meta->counters().bytes, 4 * 96.0 + 16 + 24);
  EXPECT_EQ(meta->counters().flops, 7 * 48.0);
}

TEST(MetaKernels, CountsGeluWithItsProduct) {
  const auto meta = make_meta_kernels();
  const TensorView a = nothing(kBf16, {6, 8}), b = nothing(kBf16, {8, 4}), out = nothing(kBf16, {6, 4});
  meta->matmul({.a = a, .b = b, .out = out, .activated = out});
  EXPECT_EQ(meta->counters().bytes, 2.0 * (48 + 32 + 24 + 24));
  EXPECT_EQ(meta->counters().flops, 2.0 * 6 * 8 * 4 + 8 * 24);
  meta->matmul({.a = a, .b = b, .out = out, .before_gelu = out});
  EXPECT_EQ(meta->counters().bytes, 4.0 * (48 + 32 + 24 + 24));
  EXPECT_EQ(meta->counters().flops, 4.0 * 6 * 8 * 4 + 22 * 24);
  EXPECT_EQ(meta->counters().launches, 2);
}

TEST(MetaKernels, AdamMoves28BytesAnElement) {
  const auto meta = make_meta_kernels();
  const TensorView state = nothing(kF32, {1000});
  meta->adam({.master = state, .moment1 = state, .moment2 = state, .copy_out = {}, .gradient = state});
  EXPECT_EQ(meta->counters().bytes, 28000.0);
}

// For each table that gets a gradient, dy is read once, and as many elements of the table are read and written.
TEST(MetaKernels, CountsTheEmbeddingsGradientsThatAreWanted) {
  const TensorView tokens = nothing(DType::Int32, {2, 6}), dy = nothing(kBf16, {2, 6, 8});
  const TensorView table = nothing(kBf16, {50, 8}), positions = nothing(kBf16, {6, 8});
  const auto counted = [&](TensorView dtable, TensorView dpositions) {
    const auto meta = make_meta_kernels();
    meta->embedding_backward({tokens, dy, dtable, dpositions});
    EXPECT_EQ(meta->counters().launches, 1);
    return std::pair(meta->counters().flops, meta->counters().bytes);
  };
  EXPECT_EQ(counted(table, {}), std::pair(96.0, 48 + 3 * 192.0));
  EXPECT_EQ(counted({}, positions), std::pair(96.0, 48 + 3 * 192.0));
  EXPECT_EQ(counted(table, positions), std::pair(2 * 96.0, 48 + 6 * 192.0));
}

TEST(MetaKernels, TheWorkspaceIsThatOfTheKernelThatNeedsMost) {
  const auto meta = make_meta_kernels();
  const TensorView gain = nothing(kBf16, {8}), few = nothing(kBf16, {64, 8}), many = nothing(kBf16, {6400, 8});
  meta->bias_gradient({few, gain});
  const int64_t of_few = meta->counters().workspace_bytes;
  meta->bias_gradient({many, gain});
  const int64_t of_many = meta->counters().workspace_bytes;
  meta->bias_gradient({few, gain});
  EXPECT_GT(of_few, 0);
  EXPECT_GT(of_many, of_few);
  EXPECT_EQ(meta->counters().workspace_bytes, of_many);
}

TEST(MetaKernels, EveryKernelTakesViewsWithoutMemory) {
  const auto meta = make_meta_kernels();
  const TensorView x = nothing(kBf16, {2, 6, 8}), gain = nothing(kBf16, {8}), row = nothing(kF32, {12});
  const TensorView wide = nothing(kBf16, {2, 6, 16}), flat = nothing(kF32, {96}), fixed = nothing(DType::Int64, {96});
  const TensorView tokens = nothing(DType::Int32, {2, 6}), table = nothing(kBf16, {50, 8});
  const TensorView image = nothing(kBf16, {2, 3, 4, 4}), filters = nothing(kBf16, {5, 3, 2, 2});
  const TensorView maps = nothing(kBf16, {2, 5, 3, 3}), small = nothing(kBf16, {2, 3, 2, 2});
  const TensorView channels = nothing(kBf16, {3}), statistics = nothing(kF32, {3});
  const std::vector<double> frequencies(1, 0.5);
  meta->bias_gradient({x, gain});
  meta->layer_norm({x, gain, gain, x, row, row});
  meta->layer_norm_backward_input({x, x, gain, row, row, x});
  meta->layer_norm_backward_weight({x, x, row, row, gain, gain});
  meta->rms_norm({x, gain, x, row});
  meta->rms_norm_backward_input({x, x, gain, row, x});
  meta->rms_norm_backward_weight({x, x, row, gain});
  meta->dropout_add({x, x, x, {}});
  meta->dropout_backward({x, x, {}});
  meta->gelu({x, x});
  meta->gelu_backward({x, x, x});
  meta->relu({x, x});
  meta->relu_backward({x, x, x});
  meta->soft_cap({x, x, 30});
  meta->convolution({image, filters, {}, maps, {.rows = 2, .cols = 2}});
  meta->convolution_backward_input({maps, filters, image, {.rows = 2, .cols = 2}});
  meta->convolution_backward_weight({maps, image, filters, {}, {.rows = 2, .cols = 2}});
  meta->pool({image, small, {.rows = 2, .cols = 2, .stride = 2}});
  meta->pool_backward({small, image, image, {.rows = 2, .cols = 2, .stride = 2}});
  meta->channel_norm({image, channels, channels, image, statistics, statistics});
  meta->channel_norm_backward_input({image, image, channels, statistics, statistics, image});
  meta->channel_norm_backward_weight({image, image, statistics, statistics, channels, channels});
  meta->normalize_with({image, channels, channels, channels, channels, image});
  meta->add_statistics({statistics, statistics, channels, channels, 8});
  meta->swiglu({wide, x});
  meta->swiglu_backward({x, wide, wide});
  meta->rotary({.qkv = x, .heads = 2, .key_value_heads = 1, .frequencies = frequencies});
  meta->embedding({tokens, table, {}, x});
  meta->embedding_backward({tokens, x, table, {}});
  const TensorView places = nothing(DType::Int32, {2, 4}), some = nothing(kBf16, {2, 4, 8});
  meta->choose_tokens({.chosen = places, .sequence = 6});
  meta->gather_tokens({x, places, some});
  meta->scatter_tokens({some, places, x});
  const TensorView logits = nothing(kF32, {12, 3}), chosen = nothing(DType::Int32, {12, 2}),
                   order = nothing(DType::Int32, {24});
  const TensorView weights = nothing(kF32, {12, 2}), ends = nothing(DType::Int32, {3, 1}), counts = nothing(DType::Int64, {3});
  const TensorView rows = nothing(kBf16, {24, 8}), both = nothing(kBf16, {24, 16}), matrices = nothing(kBf16, {3, 8, 16});
  const TensorView all = nothing(kBf16, {12, 8});
  meta->choose_experts({.logits = logits, .chosen = chosen, .weights = weights});
  meta->choose_experts_backward(
      {.logits = logits, .chosen = chosen, .dweights = weights, .counts = nothing(DType::Int64, {4}), .dlogits = logits});
  meta->count_choices({.chosen = chosen, .counts = nothing(DType::Int64, {4})});
  meta->order_by_expert({chosen, order, chosen, ends, {{0, 12}}});
  meta->count_rows({ends, counts});
  meta->gather_rows({all, order, rows});
  meta->combine_rows({rows, chosen, all});
  meta->weighted_swiglu({both, weights, order, rows, {}});
  meta->weighted_swiglu_backward({rows, both, weights, order, both, weights, {}, {}});
  meta->grouped_matmul({.a = rows, .b = matrices, .ends = ends, .out = both});
  meta->grouped_gradient({.a = rows, .b = both, .ends = ends, .out = matrices});
  meta->copy_runs({.from = some, .out = x, .counts = {1, 2, 4}, .run = 8, .from_steps = {0, 32, 8}, .out_steps = {0, 48, 8}});
  meta->cross_entropy({table, nothing(DType::Int32, {50}), table});
  meta->ctc(
      {.logits = wide, .targets = tokens, .dlogits = wide, .scratch = nothing(DType::UInt8, {CtcScratch(wide, tokens).bytes})});
  meta->transpose(wide, nothing(kBf16, {2, 16, 6}));
  meta->count_correct({table, nothing(DType::Int32, {50}), nothing(DType::Float64, {1})});
  meta->sgd({flat, {}, {}, flat});
  meta->lion({flat, flat, {}, flat});
  meta->adagrad({flat, flat, {}, flat});
  meta->lamb_update({flat, flat, flat, flat, flat});
  meta->apply_update({flat, {}, flat});
  meta->momentum_update({flat, flat, flat});
  meta->running_average({flat, {}, flat});
  meta->zero(flat);
  meta->copy(x, flat);
  meta->add(flat, flat);
  meta->scale(flat, 2);
  meta->initialize(flat, {}, 1, 0);
  const TensorView words = nothing(DType::Int64, {ExactSum::kWords}), losses = nothing(DType::Int64, {ExactSum::kWords + 1});
  const TensorView sums = nothing(DType::Int64, {ExactSum::kWords + kLossCounts});
  const TensorView count = nothing(DType::Int64, {1});
  meta->sum_of_squares(flat, 1, kSumBlock, words);
  meta->divide_by_norm(flat, words, 0);
  meta->sum_losses({nothing(DType::Float64, {3, 3}), sums});
  meta->judge_gradients({words, losses, nothing(DType::Float64, {3})});
  meta->fixed_point_add(flat, 1, 1, fixed, count);
  meta->fixed_point_read(fixed, flat);
  meta->fixed_point_round(flat, 1, 1, flat, count);
  EXPECT_EQ(meta->counters().launches, 67);
  EXPECT_GT(meta->counters().flops, 0);
}

// The same rules hold on every device; the message names the kernel, the rule and all arguments.
TEST(KernelArguments, ThatDoNotFitAreRefusedAlikeOnEveryDevice) {
  HostTensor x(DType::Float32, {3, 8}), gain(DType::Float32, {7}), half(DType::Float16, {3, 8}), row(DType::Float32, {3}),
      count(DType::Int64, {1}), square(DType::Float32, {8, 8}), eight(DType::Float32, {8});
  for (const auto& kernels : {make_cpu_kernels(1), make_meta_kernels()}) {
    EXPECT_THAT(
        [&] {
          kernels->rms_norm({x.view(), gain.view(), x.view(), row.view()});
        },
        testing::ThrowsMessage<std::logic_error>(
            "rms_norm: numbers of elements do not match: x float32[3, 8] gain float32[7] y float32[3, 8] rstd float32[3]"));
    EXPECT_THAT(
        [&] {
          kernels->gelu({x.view(), half.view()});
        },
        testing::ThrowsMessage<std::logic_error>("gelu: types differ: x float32[3, 8] y float16[3, 8]"));
    EXPECT_THROW(kernels->swiglu({x.view(), x.view()}), std::logic_error);
    EXPECT_THROW(kernels->rotary({x.view(), 1, 1}), std::logic_error);  // not [B, S, (N + 2G) D]
    EXPECT_THROW(kernels->soft_cap({x.view(), x.view(), 0}), std::logic_error);
    const std::vector<double> frequencies(2, 0.5);
    EXPECT_THROW(kernels->rotary({x.view().reshaped({1, 2, 12}), 2, 1, frequencies}), std::logic_error);
    EXPECT_THROW(kernels->dropout_add({x.view(), {}, x.view(), {.rate = 1.0f}}), std::logic_error);
    const Matmul product{.a = square.view(), .b = square.view(), .out = square.view()};
    Matmul both = product, accumulated = product, biased = product, narrow = product;
    both.activated = square.view(), both.before_gelu = square.view();
    accumulated.activated = square.view(), accumulated.accumulate = true;
    biased.before_gelu = square.view(), biased.bias = eight.view();
    narrow.activated = x.view();
    for (const Matmul& wrong : {both, accumulated, biased, narrow}) EXPECT_THROW(kernels->matmul(wrong), std::logic_error);
    EXPECT_THROW(kernels->matmul({.a = x.view(), .b = x.view(), .out = x.view(), .bias = {}}), std::logic_error);
    // The product has 8 rows, 8 columns, and sums of 8 terms.
    const ProductCuts all{.row_ends = {3, 8}, .col_ends = {8}, .leaves = {{{0, 4}}, {{4, 8}}}};
    const auto with = [&](const ProductCuts& cuts) {
      Matmul cut = product;
      cut.cuts = &cuts;
      kernels->matmul(cut);
    };
    EXPECT_NO_THROW(with(all));
    const ProductCuts wrong_cuts[] = {{.row_ends = {3, 7}},   {.row_ends = {3, 9}},  {.row_ends = {5, 3, 8}},
                                      {.col_ends = {7}},      {.col_ends = {9}},     {.leaves = {{{0, 4}}, {{4, 6}}, {{6, 8}}}},
                                      {.leaves = {{{0, 9}}}}, {.leaves = {{{5, 4}}}}};
    for (const ProductCuts& cuts : wrong_cuts) EXPECT_THROW(with(cuts), std::logic_error);
    EXPECT_THROW(kernels->embedding({x.view(), x.view(), {}, x.view()}), std::logic_error);
    EXPECT_THROW(kernels->adam({half.view(), x.view(), x.view(), {}, x.view()}), std::logic_error);
    EXPECT_THROW(kernels->adam({row.view(), x.view(), x.view(), {}, x.view()}), std::logic_error);
    EXPECT_THROW(kernels->copy(x.view(), row.view()), std::logic_error);
    EXPECT_THROW(kernels->add(x.view(), half.view()), std::logic_error);
    EXPECT_THROW(kernels->fixed_point_add(x.view(), 1, 1, x.view(), count.view()), std::logic_error);
    EXPECT_THROW(kernels->fixed_point_round(x.view(), 1, 1, row.view(), count.view()), std::logic_error);
    EXPECT_THROW(kernels->fixed_point_round(x.view(), 1, 1, x.view(), row.view()), std::logic_error);
    EXPECT_THROW(kernels->sum_of_squares(x.view(), 1, kSumBlock, count.view()), std::logic_error);
    EXPECT_THROW(kernels->to_host(x.view(), row.view()), std::logic_error);
  }
}

}  // namespace
}  // namespace trivet::kernels::meta_test
