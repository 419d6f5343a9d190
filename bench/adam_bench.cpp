// Compares Adam over a large flat shard with the memory bandwidth at the same time, measured by a triad a = b + s c with
// non-temporal stores.
//
//   adam_bench [MILLION ELEMENTS [ROUNDS]]        defaults: 100 million, 9 rounds
//
// The two alternate, with one and with two threads. Printed are the medians and the median of each turn's ratio Adam / triad.
// The triad moves 12 bytes per element. Adam moves 28: 24 for the states and 4 for a float32 gradient, or for a bfloat16
// gradient and copy.
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "core/buffer.h"
#include "core/median.h"
#include "kernels/kernels.h"

namespace trivet::kernels {
namespace {

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void triad(float* a, const float* b, const float* c, int64_t count, int threads) {
  const __m128 factor = _mm_set1_ps(0.5f);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < count / 16; ++i)
    for (int64_t e = 16 * i; e < 16 * i + 16; e += 4)
      _mm_stream_ps(a + e, _mm_add_ps(_mm_load_ps(b + e), _mm_mul_ps(factor, _mm_load_ps(c + e))));
  _mm_sfence();
}

class Shard {
 public:
  explicit Shard(int64_t elements) : elements_(elements) {
    for (Buffer* state : {&master_, &moment1_, &moment2_, &gradient_}) *state = buffer(DType::Float32);
    for (Buffer* narrow : {&narrow_gradient_, &copy_}) *narrow = buffer(DType::BFloat16);
    const auto kernels = make_cpu_kernels(omp_get_max_threads());
    for (Buffer* state : {&master_, &gradient_, &narrow_gradient_})
      kernels->initialize(state->view(), {.kind = Init::Kind::Uniform}, 1, 0);
    for (Buffer* state : {&moment1_, &moment2_, &copy_}) kernels->zero(state->view());
  }

  void adam(Kernels& kernels, bool mixed) {
    const int64_t step = ++step_;
    kernels.adam({.master = master_.view(),
                  .moment1 = moment1_.view(),
                  .moment2 = moment2_.view(),
                  .copy_out = mixed ? copy_.view() : TensorView{},
                  .gradient = mixed ? narrow_gradient_.view() : gradient_.view(),
                  .correction1 = bias_correction(0.9, step),
                  .correction2 = bias_correction(0.999, step)});
  }
  void triad(int threads) {
    kernels::triad(gradient_.view().as<float>(), moment1_.view().as<float>(), master_.view().as<float>(), elements_, threads);
  }

 private:
  Buffer buffer(DType dtype) { return {host_allocator(), meter_, MemoryCategory::Optimizer, dtype, {elements_}}; }

  int64_t elements_, step_ = 0;
  MemoryMeter meter_;
  Buffer master_, moment1_, moment2_, gradient_, narrow_gradient_, copy_;
};

void compare(Shard& shard, int64_t elements, int rounds, int threads, bool mixed) {
  const auto kernels = make_cpu_kernels(threads);
  const double adam_bytes = 28.0 * static_cast<double>(elements), triad_bytes = 12.0 * static_cast<double>(elements);
  std::vector<double> adam, triad, ratio;
  for (int round = 0; round <= rounds; ++round) {
    const double before = seconds([&] { shard.triad(threads); });
    const double step = seconds([&] { shard.adam(*kernels, mixed); });
    const double after = seconds([&] { shard.triad(threads); });
    if (round == 0) continue;  // warms up pages and caches
    adam.push_back(step);
    triad.push_back((before + after) / 2);
    ratio.push_back((adam_bytes / step) / (triad_bytes / triad.back()));
  }
  std::printf("%d thread%s %-28s %7.1f ms %6.1f GB/s   triad %6.1f GB/s   ratio %5.2f\n", threads, threads == 1 ? " " : "s",
              mixed ? "bfloat16 gradient and copy" : "float32", 1e3 * median(adam), adam_bytes / median(adam) * 1e-9,
              triad_bytes / median(triad) * 1e-9, median(ratio));
}

}  // namespace
}  // namespace trivet::kernels

int main(int argc, char** argv) {
  const int64_t elements = (argc > 1 ? std::atoll(argv[1]) : 100) * 1'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  trivet::kernels::Shard shard(elements);
  for (const bool mixed : {false, true})
    for (const int threads : {1, 2}) trivet::kernels::compare(shard, elements, rounds, threads, mixed);
}
