// Prints TFLOP/s of the matrix products that training computes with these configs (by default those in bench/cuda/configs),
// once with the algorithm that kernels::cuda::matmul uses and once with the fastest of cuBLASLt's candidates; then the rates of
// all candidates, in cuBLASLt's order. Each line is written when it is known.
//
//   matmul_bench [CONFIG...]                prints a table
//   matmul_bench --tune FILE [CONFIG...]    also writes the fastest candidates to FILE, for TRIVET_CUBLAS_TUNE=FILE
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/cuda/ceilings.h"
#include "bench/cuda/matmul_bench_products.h"
#include "core/cuda/error.h"
#include "core/cuda/handle.h"
#include "data/dataset.h"
#include "engine/config/load.h"
#include "engine/plan.h"
#include "kernels/cuda/products/cublas.h"
#include "kernels/cuda/products/product_of.h"
#include "trainer/open_data.h"

namespace trivet::kernels::cuda {
namespace {

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

// Returns the median time of single launches, in milliseconds.
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
  std::vector<double> all_ms;  // in the heuristic's order
  double best_ms = 0;
  cublasLtMatmulAlgo_t best{};
};

Measured measure(Cublas& cublas, const Product& product, const ProductKind& kind, const Memory& workspace) {
  Measured measured;
  for (const cublasLtMatmulAlgo_t& algorithm : cublas.algorithms(product, 8)) {
    cublas.choose(product, algorithm);
    const double ms = milliseconds_of([&] { cublas.multiply(product, kind, workspace.data(), nullptr); });
    measured.all_ms.push_back(ms);
    if (measured.best_ms != 0 && ms >= measured.best_ms) continue;
    measured.best_ms = ms;
    measured.best = algorithm;
  }
  return measured;
}

// A product whose views have memory.
class Operands {
 public:
  explicit Operands(Matmul product) : product_(product) {
    for (ConstTensorView* view : {&product_.a, &product_.b, &product_.bias, &product_.before_gelu}) place(*view);
    for (TensorView* view : {&product_.out, &product_.activated}) place(*view);
  }
  const Matmul& product() const { return product_; }

 private:
  template <typename View>
  void place(View& view) {
    if (view.absent()) return;
    memory_.push_back(std::make_unique<Memory>(std::max<int64_t>(view.bytes(), kLeastBytes)));
    view.data = memory_.back()->data();
  }
  static constexpr int64_t kLeastBytes = 256;

  Matmul product_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

model::Model model_of(const Config& config) {
  const bool stated = config.vocabulary.kind == VocabularyKind::Size;
  const int64_t vocabulary =
      stated ? config.model.vocabulary_size : data::open_dataset(trainer::data_options(config)).vocabulary_size;
  return model::build(model::with_vocabulary(config.model, vocabulary));
}

class Bench {
 public:
  explicit Bench(const std::string& choices_file) : file_(choices_file) {
    if (file_.empty()) return;
    choices_.open(file_);
    choices_ << cublas_.header() << "\n";
  }

  void run(const std::string& config_file) {
    const Config config = load_config(config_file);
    fmt::print("{}\n{:<12} {:<80} {:>14} {:>14}  {}\n", config_file, "layer", "product", "first TFLOP/s", "best TFLOP/s",
               "all");
    for (const AskedProduct& asked : products_of(config, model_of(config))) {
      const Operands operands(asked.product);
      const Product product = first_product(operands.product());
      const ProductKind kind = kind_of(product);
      if (kind.k == 0 || !seen_.insert(kind).second) continue;
      const Measured measured = measure(cublas_, product, kind, workspace_);
      const double gflop = 2e-9 * static_cast<double>(kind.m) * static_cast<double>(kind.n) * static_cast<double>(kind.k);
      if (measured.all_ms.empty()) {
        fmt::print("{:<12} {:<80} {:>29}\n", asked.layer, to_string(kind), "no algorithm in cuBLASLt");
        continue;
      }
      std::string all;
      for (const double ms : measured.all_ms) all += fmt::format(" {:.1f}", gflop / ms);
      fmt::print("{:<12} {:<80} {:>14.1f} {:>14.1f} {}\n", asked.layer, to_string(kind), gflop / measured.all_ms.front(),
                 gflop / measured.best_ms, all);
      if (choices_.is_open()) choices_ << cublas_.line_of(kind, measured.best) << std::endl;  // flushed
    }
  }

  // Throws when the file of choices cannot be written.
  void finish() {
    if (choices_.is_open() && !choices_.flush()) throw std::runtime_error("cannot write " + file_);
  }

 private:
  const std::string file_;
  Cublas& cublas_ = Cublas::of_current_device();
  const Memory workspace_{kCublasWorkspaceBytes};
  std::ofstream choices_;
  std::set<ProductKind> seen_;
};

}  // namespace
}  // namespace trivet::kernels::cuda

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<std::string> configs(arguments + 1, arguments + count);
  std::string choices;
  if (!configs.empty() && configs[0] == "--tune") {
    if (configs.size() < 2) {
      fmt::print(stderr, "usage: matmul_bench [--tune FILE] [CONFIG...]\n");
      return 2;
    }
    choices = configs[1];
    configs.erase(configs.begin(), configs.begin() + 2);
  }
  if (configs.empty())
    for (const char* name : {"gpt2_124m", "gpt2_1.5b", "llama_1b"})
      configs.push_back(fmt::format("{}/bench/cuda/configs/{}.json", TRIVET_SOURCE_DIR, name));
  try {
    trivet::kernels::cuda::Bench bench(choices);
    for (const std::string& config : configs) bench.run(config);
    bench.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "matmul_bench: {}\n", error.what());
    return 1;
  }
}
