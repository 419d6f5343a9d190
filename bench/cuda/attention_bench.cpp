// Compares attention forward and backward with the matrix rate measured in the same run, for the shapes of the models in
// configs/, for heads of size 128, for 4096 tokens, and for documents in one sequence as well as in sequences of their own.
// FLOPs are counted by MetaKernels: only the half of the scores that the causal mask leaves.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/cuda/ceilings.h"
#include "core/cuda/memory.h"
#include "core/cuda/streams.h"
#include "core/memory.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/kernels.h"

namespace trivet::kernels {
namespace {

using trivet::cuda::print_figure;

// The targets, as shares of the matrix rate.
constexpr double kForwardTarget = 0.60, kBackwardTarget = 0.50;
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

// B sequences, S tokens, N query heads, G key/value heads, D head size
struct Case {
  int64_t b, s, n, g, d, document = 0;  // document > 0: sequences are documents of so many tokens
};
constexpr Case kCases[] = {{32, 1024, 12, 12, 64},  // GPT-2 124 M
                           {8, 1024, 25, 25, 64},   // GPT-2 1.5 B
                           {8, 1024, 32, 4, 64},    // Llama 1 B
                           {8, 1024, 16, 16, 128}, {4, 4096, 16, 16, 64},      {4, 4096, 16, 16, 128},
                           {32, 512, 16, 16, 64},  {1, 16384, 16, 16, 64, 512}};

class Bench {
 public:
  void run() {
    const double peak = cuda::matrix_rate(streams_.compute(), timer_);
    print_figure("product of 8192 x 8192 x 8192, bfloat16", 1e-12 * peak, "TFLOP/s");
    for (const Case& c : kCases) run(c, peak);
  }

 private:
  TensorView tensor(DType dtype, const Shape& shape) {
    buffers_.emplace_back(*allocator_, meter_, MemoryCategory::Buffers, dtype, shape);
    const TensorView view = buffers_.back().view();
    kernels_->initialize(view, {.kind = Init::Kind::Normal, .scale = 1}, buffers_.size(), 0);
    return view;
  }
  void run(const Case& c, double peak) {
    constexpr DType kType = DType::BFloat16;
    const TensorView qkv = tensor(kType, {c.b, c.s, (c.n + 2 * c.g) * c.d}), dqkv = tensor(kType, qkv.shape);
    const TensorView out = tensor(kType, {c.b, c.s, c.n * c.d}), dout = tensor(kType, out.shape);
    const TensorView sums = tensor(DType::Float32, {c.b, c.n, c.s});
    const ConstTensorView documents = c.document > 0 ? documents_of(c) : ConstTensorView();
    const std::string of = c.document > 0 ? fmt::format(", documents of {}", c.document) : "";
    const std::string shape = fmt::format(", B {} S {} N {} G {} D {}{}", c.b, c.s, c.n, c.g, c.d, of);
    // The scores of documents are those of sequences of their own.
    const double scores = c.document > 0 ? static_cast<double>(c.document) / static_cast<double>(c.s) : 1.0;
    measure("attention" + shape, scores, kForwardTarget, peak, [&](Kernels& k) {
      k.attention({.qkv = qkv, .out = out, .log_sum_exp = sums, .heads = c.n, .key_value_heads = c.g, .documents = documents});
    });
    measure("attention_backward" + shape, scores, kBackwardTarget, peak, [&](Kernels& k) {
      k.attention_backward({.dout = dout,
                            .qkv = qkv,
                            .out = out,
                            .log_sum_exp = sums,
                            .dqkv = dqkv,
                            .heads = c.n,
                            .key_value_heads = c.g,
                            .documents = documents});
    });
    buffers_.clear();
  }
  // The first tokens of the documents of all tokens.
  ConstTensorView documents_of(const Case& c) {
    std::vector<int32_t> firsts;
    for (int64_t token = 0; token < c.b * c.s; ++token)
      firsts.push_back(static_cast<int32_t>(token % c.s / c.document * c.document));
    buffers_.emplace_back(*allocator_, meter_, MemoryCategory::Buffers, DType::Int32, Shape{c.b, c.s});
    kernels_->from_host({firsts.data(), DType::Int32, {c.b, c.s}}, buffers_.back().view());
    return buffers_.back().view();
  }
  // `scores`: which share of the scores that are counted are computed.
  void measure(const std::string& name, double scores, double target, double peak, const std::function<void(Kernels&)>& call) {
    const auto meta = make_meta_kernels();
    call(*meta);
    const double seconds = timer_.median_seconds([&](int) { call(*kernels_); });
    const double rate = scores * meta->counters().flops / seconds;
    print_figure(
        name, 1e-12 * rate, "TFLOP/s",
        fmt::format(", \"microseconds\": {:.1f}, \"share\": {:.3f}, \"target\": {:.2f}", seconds * 1e6, rate / peak, target));
  }

  MemoryMeter meter_;
  cuda::Streams streams_{0};
  std::unique_ptr<Allocator> allocator_ = cuda::make_device_allocator(0);
  cuda::Timer timer_{streams_.compute()};
  std::unique_ptr<Kernels> kernels_ = make_cuda_kernels({.streams = &streams_,
                                                         .allocator = allocator_.get(),
                                                         .meter = &meter_,
                                                         .workspace_bytes = kWorkspaceBytes,
                                                         .after_wait = {}});
  std::vector<Buffer> buffers_;
};

}  // namespace
}  // namespace trivet::kernels

int main() {
  return trivet::cuda::run_bench("attention_bench", [] { trivet::kernels::Bench().run(); });
}
