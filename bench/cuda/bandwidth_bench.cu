// Compares the rates of memory-bound GPU kernels with the rate of a copy on the same device.
//
//   bandwidth_bench [PART...]        elementwise, norms, activations, embeddings, cross_entropies, optimizers
//
// A line shows the median time of a launch, measured by events; the bytes that must move (each argument once for every time it
// must be read or written) divided by that time; and the share of the rate of cudaMemcpyAsync from device to device. Tensors
// are far larger than the second-level cache and hold random numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/cuda/error.h"
#include "core/cuda/launch.h"
#include "core/cuda/memory.h"
#include "core/cuda/streams.h"
#include "core/random.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/packs.cuh"
#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

constexpr int64_t kTokens = 16384, kHidden = 4096, kParameters = int64_t{1} << 28, kWorkspace = int64_t{256} << 20;

__global__ void __launch_bounds__(512) copy_packs(const float* from, float* to, int64_t packs) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t p = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < packs; p += step)
    cuda::store_pack(to + 4 * p, cuda::load_pack<4>(from + 4 * p));
}

class Bench {
 public:
  explicit Bench(std::vector<std::string> wanted) : wanted_(std::move(wanted)) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    CUDA_CHECK(cudaEventCreate(&start_));
    CUDA_CHECK(cudaEventCreate(&end_));
    launch_ = {streams_.compute(), properties.multiProcessorCount, allocate(DType::UInt8, {kWorkspace})};
    std::printf("%s, %d multiprocessors\n%-28s %10s %10s %8s\n", properties.name, properties.multiProcessorCount, "kernel",
                "us", "GB/s", "of copy");
    measure_copy();
  }
  ~Bench() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool wants(const std::string& name) const {
    return wanted_.empty() ||
           std::any_of(wanted_.begin(), wanted_.end(), [&](const auto& part) { return name.find(part) != std::string::npos; });
  }
  // The memory is valid until the next call of release().
  TensorView allocate(DType dtype, const Shape& shape) {
    buffers_.emplace_back(*allocator_, meter_, MemoryCategory::Buffers, dtype, shape);
    return buffers_.back().view();
  }
  TensorView random(DType dtype, const Shape& shape) {
    const TensorView view = allocate(dtype, shape);
    cuda::compute(Initialize{view, {Init::Kind::Uniform, 1.0}, 7 + buffers_.size(), 0}, launch_);
    return view;
  }
  template <typename T>
  TensorView from_host(const std::vector<T>& values, const Shape& shape) {
    const TensorView view = allocate(kDTypeOf<T>, shape);
    CUDA_CHECK(cudaMemcpy(view.data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return view;
  }
  void release() {
    CUDA_CHECK(cudaDeviceSynchronize());
    buffers_.resize(1);  // the workspace
  }

  template <typename Args>
  void run(const std::string& name, std::initializer_list<ConstTensorView> moved, const Args& args) {
    double bytes = 0;
    for (const ConstTensorView& view : moved) bytes += static_cast<double>(view.bytes());
    print(name, bytes, median_seconds([&] { cuda::compute(args, launch_); }));
  }

 private:
  double median_seconds(const std::function<void()>& work) {
    std::vector<float> times;
    for (int i = 0; i < 23; ++i) {
      CUDA_CHECK(cudaEventRecord(start_, launch_.stream));
      work();
      CUDA_CHECK(cudaEventRecord(end_, launch_.stream));
      CUDA_CHECK(cudaEventSynchronize(end_));
      float milliseconds = 0;
      CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_, end_));
      if (i >= 3) times.push_back(milliseconds);  // the first ones warm up
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return 1e-3 * static_cast<double>(times[10]);
  }
  void print(const std::string& name, double bytes, double seconds) const {
    const double rate = bytes / seconds;
    std::printf("%-28s %10.1f %10.0f %7.0f%%\n", name.c_str(), 1e6 * seconds, 1e-9 * rate,
                copy_rate_ > 0 ? 100 * rate / copy_rate_ : 100.0);
  }
  void measure_copy() {
    const TensorView from = random(DType::Float32, {kParameters}), to = allocate(DType::Float32, {kParameters});
    const double bytes = 2.0 * static_cast<double>(from.bytes());
    const double seconds = median_seconds([&] { cuda::compute(Copy{from, to}, launch_); });
    copy_rate_ = bytes / seconds;
    print("cudaMemcpyAsync", bytes, seconds);
    const auto own_copy = [&] {
      TRIVET_LAUNCH(copy_packs, static_cast<unsigned>(launch_.multiprocessors * 16), 512, 0, launch_.stream,
                    static_cast<const float*>(from.data), static_cast<float*>(to.data), kParameters / 4);
    };
    print("own copy, 16 bytes a thread", bytes, median_seconds(own_copy));
    release();
  }

  std::vector<std::string> wanted_;
  trivet::cuda::Streams streams_{0};
  std::unique_ptr<Allocator> allocator_ = trivet::cuda::make_device_allocator(0);
  MemoryMeter meter_;
  std::vector<Buffer> buffers_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  cuda::Launch launch_;
  double copy_rate_ = 0;
};

void elementwise(Bench& b) {
  const TensorView x = b.random(DType::BFloat16, {kTokens, kHidden}), y = b.random(DType::BFloat16, {kTokens, kHidden});
  const TensorView wide = b.random(DType::Float32, {kTokens, kHidden}), row = b.random(DType::BFloat16, {kHidden});
  const TensorView sums = b.allocate(DType::Int64, {kTokens, kHidden}), refused = b.allocate(DType::Int64, {1});
  const TensorView norm = b.allocate(DType::Int64, {ExactSum::kWords});
  b.run("zero", {x}, Zero{x});
  b.run("copy bf16 to fp32", {x, wide}, Copy{x, wide});
  b.run("copy fp32 to bf16", {wide, x}, Copy{wide, x});
  b.run("add bf16", {x, y, y}, Add{x, y});
  b.run("scale bf16", {x, x}, Scale{x, 1.0});
  b.run<AddBias>("add_bias", {x, x}, {.x = x, .bias = row, .out = x});
  const Squares of_x{x, 1.0, kSumBlock}, of_wide{wide, 1.0, kSumBlock};
  b.run("sum_of_squares bf16", {x}, SumOfSquares{std::span(&of_x, 1), norm});
  b.run("sum_of_squares fp32", {wide}, SumOfSquares{std::span(&of_wide, 1), norm});
  b.run("divide_by_norm fp32", {wide, wide}, DivideByNorm{wide, norm, 1.0});
  b.run("fixed_point_store", {x, sums}, FixedPointStore{x, 1.0, 100, sums, refused});
  b.run("fixed_point_add", {x, sums, sums}, FixedPointAdd{x, 1.0, 100, sums, refused});
  b.run("fixed_point_read", {sums, x}, FixedPointRead{sums, x});
  b.run("fixed_point_round", {wide, x}, FixedPointRound{wide, 1.0, 100, x, refused});
  for (const int bits : {8, 4}) {
    const TensorView packed = b.allocate(DType::UInt8, {quantized_bytes(x.elements(), bits)});
    b.run("quantize " + std::to_string(bits) + " bits", {x, packed}, Quantize{x, packed, bits});
    b.run("dequantize " + std::to_string(bits) + " bits", {packed, x}, Dequantize{packed, x, bits, false});
  }
}

void norms(Bench& b) {
  for (const int64_t hidden : {int64_t{768}, int64_t{1600}, kHidden, int64_t{8192}}) {
    const int64_t rows = kTokens * kHidden / hidden;
    const Shape shape{rows, hidden};
    const TensorView x = b.random(DType::BFloat16, shape), dy = b.random(DType::BFloat16, shape);
    const TensorView y = b.random(DType::BFloat16, shape), gain = b.random(DType::BFloat16, {hidden});
    const TensorView out = b.allocate(DType::BFloat16, shape);
    const TensorView mean = b.allocate(DType::Float32, {rows}), rstd = b.allocate(DType::Float32, {rows});
    const TensorView dgain = b.random(DType::Float32, {hidden}), dbias = b.random(DType::Float32, {hidden});
    const std::string width = " " + std::to_string(hidden);
    b.run<LayerNorm>("layer_norm" + width, {x, y}, {.x = x, .gain = gain, .bias = gain, .y = y, .mean = mean, .rstd = rstd});
    for (const float rate : {0.0f, 0.1f})
      b.run<LayerNorm>(std::string(rate == 0 ? "sum" : "dropout, sum") + " and layer_norm" + width, {x, dy, out, y},
                       {.x = out,
                        .gain = gain,
                        .bias = gain,
                        .y = y,
                        .mean = mean,
                        .rstd = rstd,
                        .sum = {.x = dy, .residual = x, .out = out, .dropout = {.rate = rate}}});
    b.run<LayerNormBackwardInput>("layer_norm dx + residual" + width, {dy, x, y, y},
                                  {.dy = dy, .x = x, .gain = gain, .mean = mean, .rstd = rstd, .dx = y, .residual = y});
    b.run<LayerNormBackwardWeight>("layer_norm dw" + width, {dy, x},
                                   {.dy = dy, .x = x, .mean = mean, .rstd = rstd, .dgain = dgain, .dbias = dbias});
    b.run<RmsNorm>("rms_norm" + width, {x, y}, {.x = x, .gain = gain, .y = y, .rstd = rstd});
    b.run<RmsNormBackwardInput>("rms_norm dx" + width, {dy, x, y}, {.dy = dy, .x = x, .gain = gain, .rstd = rstd, .dx = y});
    b.run<RmsNormBackwardWeight>("rms_norm dw" + width, {dy, x}, {.dy = dy, .x = x, .rstd = rstd, .dgain = dgain});
    b.run<BiasGradient>("bias_gradient" + width, {dy}, {.dy = dy, .dbias = dbias});
    b.release();
  }
}

void activations(Bench& b) {
  const Shape shape{8, kTokens / 8, kHidden};
  const TensorView x = b.random(DType::BFloat16, shape), dy = b.random(DType::BFloat16, shape);
  const TensorView y = b.random(DType::BFloat16, shape);
  const TensorView gate_up = b.random(DType::BFloat16, {kTokens, 2 * kHidden});
  const TensorView dgate_up = b.allocate(DType::BFloat16, {kTokens, 2 * kHidden});
  const TensorView rows = y.reshaped({kTokens, kHidden});
  const DropoutSite site{.rate = 0.1f, .key = 1};
  b.run<Gelu>("gelu", {x, y}, {.x = x, .y = y});
  b.run<GeluBackward>("gelu_backward", {dy, x, y}, {.dy = dy, .x = x, .dx = y});
  b.run<SwiGlu>("swiglu", {gate_up, y}, {.gate_up = gate_up, .y = rows});
  b.run<SwiGluBackward>("swiglu_backward", {gate_up, dgate_up, y}, {.dy = rows, .gate_up = gate_up, .dgate_up = dgate_up});
  b.run<DropoutAdd>("dropout_add", {x, y, y}, {.x = x, .residual = y, .out = y, .dropout = site});
  b.run<DropoutBackward>("dropout_backward", {dy, y}, {.dy = dy, .dx = y, .dropout = site});
  const TensorView qkv = b.random(DType::BFloat16, {8, kTokens / 8, 48 * 128});
  const ConstTensorView turned = qkv.slice(0, qkv.elements() / 48 * 40);  // 32 query and 8 key heads
  std::vector<double> frequencies;
  for (int pair = 0; pair < 64; ++pair) frequencies.push_back(std::pow(10000.0, -pair / 64.0));
  b.run<Rotary>("rotary", {turned, turned}, {.qkv = qkv, .heads = 32, .key_value_heads = 8, .frequencies = frequencies});
}

// Returns random token ids, either uniformly distributed or as in text, where the k-th id has a probability of about 1 / k.
std::vector<int32_t> token_ids(int64_t count, int64_t vocabulary, bool as_in_text) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (size_t t = 0; t < ids.size(); ++t) {
    const double uniform = static_cast<double>(unit_float(philox(3, t, 0)[0]));
    const double place =
        as_in_text ? std::pow(static_cast<double>(vocabulary), uniform) - 1 : uniform * static_cast<double>(vocabulary);
    ids[t] = static_cast<int32_t>(place);
  }
  return ids;
}

void embeddings(Bench& b) {
  constexpr int64_t kCount = 65536, kVocabulary = 131072, kWidth = 2048;
  const TensorView table = b.random(DType::BFloat16, {kVocabulary, kWidth});
  const TensorView dtable = b.random(DType::Float32, {kVocabulary, kWidth});
  const TensorView x = b.random(DType::BFloat16, {32, kCount / 32, kWidth});
  const TensorView dpositions = b.random(DType::Float32, {kCount / 32, kWidth});
  for (const bool as_in_text : {false, true}) {
    const std::vector<int32_t> ids = token_ids(kCount, kVocabulary, as_in_text);
    std::vector<int32_t> used = ids;
    std::sort(used.begin(), used.end());
    const int64_t rows = std::unique(used.begin(), used.end()) - used.begin();
    const TensorView tokens = b.from_host(ids, {32, kCount / 32}), used_rows = dtable.row_range(0, rows);
    const std::string kind = as_in_text ? " (text)" : " (uniform)";
    b.run<Embedding>("embedding" + kind, {tokens, x, x}, {.tokens = tokens, .table = table, .out = x});
    b.run<EmbeddingBackward>("embedding dtable" + kind, {tokens, x, used_rows, used_rows},
                             {.tokens = tokens, .dy = x, .dtable = dtable});
    b.run<EmbeddingBackward>("embedding dpositions" + kind, {x, dpositions, dpositions},
                             {.tokens = tokens, .dy = x, .dpositions = dpositions});
  }
}

void cross_entropies(Bench& b) {
  for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{8192, 50304}, {8192, 50257}, {4096, 128256}}) {
    const TensorView logits = b.random(DType::BFloat16, {rows, vocabulary}), loss = b.allocate(DType::Float64, {2});
    const TensorView dlogits = b.allocate(DType::BFloat16, {rows, vocabulary});
    const TensorView targets = b.from_host(token_ids(rows, vocabulary, true), {rows});
    const TensorView maximum = b.allocate(DType::Float32, {rows}), sums = b.allocate(DType::Float32, {2, rows});
    const std::string width = " " + std::to_string(vocabulary);
    b.run<CrossEntropy>("cross_entropy" + width, {logits, dlogits},
                        {.logits = logits, .targets = targets, .dlogits = dlogits, .loss = loss});
    b.run<RowMaxima>("row_maxima" + width, {logits}, {.logits = logits, .maximum = maximum});
    b.run<RowSums>("row_sums" + width, {logits}, {.logits = logits, .targets = targets, .maximum = maximum, .sums = sums});
    b.run<CrossEntropyOfPart>(
        "cross_entropy_of_part" + width, {logits, dlogits},
        {.logits = logits, .targets = targets, .maximum = maximum, .sums = sums, .dlogits = dlogits, .loss = loss});
    b.release();
  }
}

void optimizers(Bench& b) {
  const Shape shape{kParameters};
  const TensorView master = b.random(DType::Float32, shape), m = b.random(DType::Float32, shape);
  const TensorView v = b.random(DType::Float32, shape), update = b.allocate(DType::Float32, shape);
  const TensorView g = b.random(DType::BFloat16, shape), copy = b.allocate(DType::BFloat16, shape);
  const TensorView verdict = b.from_host<double>({1, 1, 1}, {3});
  const Adam narrow{.master = master, .moment1 = m, .moment2 = v, .copy_out = copy, .gradient = g, .verdict = verdict};
  const Adam wide{.master = master, .moment1 = m, .moment2 = v, .copy_out = copy, .gradient = update, .verdict = verdict};
  b.run("adam, bf16 gradient", {g, copy, master, master, m, m, v, v}, AdamUpdates{std::span(&narrow, 1)});
  b.run("adam, fp32 gradient", {update, copy, master, master, m, m, v, v}, AdamUpdates{std::span(&wide, 1)});
  b.run<Sgd>("sgd with momentum", {g, copy, master, master, m, m},
             {.master = master, .momentum_buffer = m, .copy_out = copy, .gradient = g, .verdict = verdict, .momentum = 0.9});
  b.run<Lion>("lion", {g, copy, master, master, m, m},
              {.master = master, .moment = m, .copy_out = copy, .gradient = g, .verdict = verdict});
  b.run<Adagrad>("adagrad", {g, copy, master, master, v, v},
                 {.master = master, .sum_of_squares = v, .copy_out = copy, .gradient = g, .verdict = verdict});
  b.run<LambUpdate>("lamb_update", {g, master, m, m, v, v, update},
                    {.master = master, .moment1 = m, .moment2 = v, .update = update, .gradient = g, .verdict = verdict});
  b.run<ApplyUpdate>("apply_update", {update, copy, master, master},
                     {.master = master, .copy_out = copy, .update = update, .verdict = verdict, .scale = 1e-3});
  b.run<MomentumUpdate>("momentum_update", {g, m, m, update},
                        {.momentum_buffer = m, .out = update, .gradient = g, .verdict = verdict});
}

int run(int argc, char** argv) {
  const std::pair<const char*, void (*)(Bench&)> parts[] = {{"elementwise", elementwise},         {"norms", norms},
                                                            {"activations", activations},         {"embeddings", embeddings},
                                                            {"cross_entropies", cross_entropies}, {"optimizers", optimizers}};
  Bench bench(std::vector<std::string>(argv + 1, argv + argc));
  for (const auto& [name, part] : parts) {
    if (!bench.wants(name)) continue;
    part(bench);
    bench.release();
  }
  return 0;
}

}  // namespace
}  // namespace trivet::kernels

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line is written when it is known
  try {
    return trivet::kernels::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bandwidth_bench: %s\n", error.what());
    return 1;
  }
}
