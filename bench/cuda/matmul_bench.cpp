// TFLOP/s of the products of GPT-2 and Llama steps, as kernels::cuda::matmul makes them, beside the fastest of cuBLASLt's
// candidates.
//
//   matmul_bench                  prints a table
//   matmul_bench --tune FILE      writes the fastest candidates, for TRIVET_CUBLAS_TUNE=FILE
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/ceilings.h"
#include "core/cuda/error.h"
#include "core/cuda/handle.h"
#include "kernels/cuda/products/cublas.h"

namespace trivet::kernels::cuda {
namespace {

// T tokens, H hidden, F feed-forward, Q qkv columns, V vocabulary (padded)
struct Model {
  const char* name;
  int64_t tokens, hidden, feed_forward, qkv, vocabulary;
};
constexpr Model kModels[] = {{"gpt2-124m", 16384, 768, 3072, 2304, 50304},
                             {"gpt2-1.5b", 8192, 1600, 6400, 4800, 50304},
                             {"llama-1b", 8192, 2048, 8192, 3072, 32000}};

struct Shape {
  std::string name;
  int64_t rows, in, out;  // of a linear layer y[rows, out] = x[rows, in] w[in, out]
};

std::vector<Shape> shapes_of(const Model& m) {
  return {{"qkv", m.tokens, m.hidden, m.qkv},
          {"out", m.tokens, m.hidden, m.hidden},
          {"up", m.tokens, m.hidden, m.feed_forward},
          {"down", m.tokens, m.feed_forward, m.hidden},
          {"head", m.tokens, m.hidden, m.vocabulary}};
}

// Forward, gradient of the input, gradient of the weight (added to float32).
std::vector<std::pair<std::string, Product>> products_of(const Shape& s) {
  const auto product = [](int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) {
    return Product{.dtype = DType::BFloat16,
                   .out_dtype = DType::BFloat16,
                   .transpose_a = transpose_a,
                   .transpose_b = transpose_b,
                   .m = m,
                   .n = n,
                   .k = k,
                   .a_stride = transpose_a ? m : k,
                   .b_stride = transpose_b ? k : n,
                   .out_stride = n};
  };
  Product weight = product(s.in, s.out, s.rows, true, false);
  weight.out_dtype = DType::Float32;
  weight.accumulate = true;
  return {{"forward", product(s.rows, s.out, s.in, false, false)},
          {"input", product(s.rows, s.in, s.out, false, true)},
          {"weight", weight}};
}

class Memory {
 public:
  explicit Memory(int64_t bytes) {
    CUDA_CHECK(cudaMalloc(&data_, static_cast<size_t>(bytes)));
    trivet::cuda::fill_bfloat16(data_, bytes, 1, nullptr);
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

trivet::cuda::EventHandle timing_event() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreate(&event));
  return trivet::cuda::EventHandle(event);
}

// The median of single launches, in milliseconds.
double milliseconds_of(const std::function<void()>& launch) {
  constexpr int kWarmups = 3, kLaunches = 15;
  const auto start = timing_event(), end = timing_event();
  std::vector<float> times;
  for (int i = 0; i < kWarmups + kLaunches; ++i) {
    CUDA_CHECK(cudaEventRecord(start.get(), nullptr));
    launch();
    CUDA_CHECK(cudaEventRecord(end.get(), nullptr));
    CUDA_CHECK(cudaEventSynchronize(end.get()));
    float time = 0;
    CUDA_CHECK(cudaEventElapsedTime(&time, start.get(), end.get()));
    if (i >= kWarmups) times.push_back(time);
  }
  std::nth_element(times.begin(), times.begin() + kLaunches / 2, times.end());
  return times[kLaunches / 2];
}

struct Measured {
  double first_ms = 0, best_ms = 0;
  cublasLtMatmulAlgo_t best{};
};

Measured measure(Cublas& cublas, const Product& product, const ProductKind& kind, const Memory& workspace) {
  Measured measured;
  for (const cublasLtMatmulAlgo_t& algorithm : cublas.algorithms(product, 8)) {
    cublas.choose(product, algorithm);
    const double ms = milliseconds_of([&] { cublas.multiply(product, kind, workspace.data(), nullptr); });
    if (measured.first_ms == 0) measured.first_ms = ms;
    if (measured.best_ms != 0 && ms >= measured.best_ms) continue;
    measured.best_ms = ms;
    measured.best = algorithm;
  }
  return measured;
}

int run(const std::string& file) {
  Cublas& cublas = Cublas::of_current_device();
  std::ofstream choices;
  if (!file.empty()) {
    choices.open(file);
    choices << cublas.header() << "\n";
  }
  const Memory workspace(kCublasWorkspaceBytes);
  fmt::print("{:<10} {:<5} {:<8} {:>22} {:>14} {:>14}\n", "model", "layer", "what", "m x n x k", "first TFLOP/s",
             "best TFLOP/s");
  for (const Model& model : kModels)
    for (const Shape& shape : shapes_of(model)) {
      const int64_t largest = std::max({shape.rows * shape.in, shape.rows * shape.out, shape.in * shape.out}) * 4;
      const Memory a(largest), b(largest), out(largest);
      for (auto& [what, product] : products_of(shape)) {
        product.a = a.data(), product.b = b.data(), product.out = out.data();
        const ProductKind kind = kind_of(product);
        const Measured measured = measure(cublas, product, kind, workspace);
        const double gflop =
            2e-9 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
        fmt::print("{:<10} {:<5} {:<8} {:>22} {:>14.1f} {:>14.1f}\n", model.name, shape.name, what,
                   fmt::format("{}x{}x{}", product.m, product.n, product.k), gflop / measured.first_ms,
                   gflop / measured.best_ms);
        if (choices.is_open()) choices << cublas.line_of(kind, measured.best) << "\n";
      }
    }
  if (choices.is_open() && !choices.flush()) {
    fmt::print(stderr, "matmul_bench: cannot write {}\n", file);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace trivet::kernels::cuda

int main(int count, char** arguments) {
  const bool tunes = count == 3 && std::string(arguments[1]) == "--tune";
  if (count != 1 && !tunes) {
    fmt::print(stderr, "usage: matmul_bench [--tune FILE]\n");
    return 2;
  }
  try {
    return trivet::kernels::cuda::run(tunes ? arguments[2] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "matmul_bench: {}\n", error.what());
    return 1;
  }
}
