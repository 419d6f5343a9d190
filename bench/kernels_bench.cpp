// Prints the rates of the CPU kernels that do most of the arithmetic, with the shapes of two GPTs (3.3 M and 124 M parameters)
// and of convolutional nets.
//
//   kernels_bench [THREADS [SECONDS [products | others | images | attention]]]    defaults: 1 thread, 0.3 s per line, all
//
// Products are compared with oneDNN, with its own threading and on the same data, in turns: for float32 with sgemm and the
// matmul primitive; for bfloat16 with the matmul primitive, with b unchanged and with b in the layout that the primitive
// prefers (reordered before the clock starts). A line shows the median rates and the median of each turn's ratio of our rate to
// oneDNN's best.

#include <omp.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/median.h"
#include "core/random.h"
#include "kernels/cpu/math.h"

namespace trivet::kernels {
namespace {

using dnnl::memory;

struct Product {
  std::string name;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

// The three products of a linear layer with weights [out, in] and `rows` tokens.
std::vector<Product> linear(const std::string& name, int64_t rows, int64_t in, int64_t out) {
  return {{name + " forward", rows, out, in, false, true, false},
          {name + " dx", rows, in, out, false, false, false},
          {name + " dw", out, in, rows, true, false, true}};
}

std::vector<Product> products(const std::string& model, int64_t rows, int64_t hidden, int64_t vocabulary,
                              int64_t vocabulary_rows) {
  std::vector<Product> all;
  const auto add = [&](const char* part, int64_t t, int64_t in, int64_t out) {
    for (Product& p : linear(model + " T" + std::to_string(t) + " " + part, t, in, out)) all.push_back(std::move(p));
  };
  add("qkv", rows, hidden, 3 * hidden);
  add("projection", rows, hidden, hidden);
  add("up", rows, hidden, 4 * hidden);
  add("down", rows, 4 * hidden, hidden);
  add("head", vocabulary_rows, hidden, vocabulary);
  return all;
}

std::vector<std::byte> random_bytes(DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(static_cast<size_t>(elements * size_of(dtype)));
  for (int64_t e = 0; e < elements; ++e) {
    const float value = unit_float(static_cast<uint32_t>(e) * 2654435761u) - 0.5f;
    if (dtype == DType::Float32) reinterpret_cast<float*>(bytes.data())[e] = value;
    if (dtype == DType::BFloat16) reinterpret_cast<bfloat16*>(bytes.data())[e] = bfloat16(value);
  }
  return bytes;
}

// With one thread this is the thread's processor time, which is right even if the machine is busy with other work. With several
// threads it is the elapsed time.
double seconds_of(const std::function<void()>& work) {
  const clockid_t clock = omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  timespec start{}, end{};
  clock_gettime(clock, &start);
  work();
  clock_gettime(clock, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// The complete product by oneDNN, in one call, with its own threads.
class Peer {
 public:
  Peer(const Product& p, DType dtype, DType out, void* a, void* b, void* c, bool packed)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const auto type = [](DType d) { return d == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32; };
    const auto strides = [](bool transposed, int64_t rows, int64_t cols) {
      return transposed ? memory::dims{1, rows} : memory::dims{cols, 1};
    };
    const memory::desc a_desc({p.m, p.k}, type(dtype), strides(p.transpose_a, p.m, p.k));
    const memory::desc b_desc({p.k, p.n}, type(dtype), strides(p.transpose_b, p.k, p.n));
    const memory::desc c_desc({p.m, p.n}, type(out), memory::dims{p.n, 1});
    const memory::desc any({p.k, p.n}, type(dtype), memory::format_tag::any);
    dnnl::primitive_attr attributes;
    if (p.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, a_desc, packed ? any : b_desc, c_desc, attributes);
#else
    const dnnl::matmul::primitive_desc description({a_desc, packed ? any : b_desc, c_desc}, attributes, engine_);
#endif
    product_ = dnnl::matmul(description);
    memory b_memory(b_desc, engine_, b);
    if (packed) {
      memory reordered(description.weights_desc(), engine_);
      dnnl::reorder(b_memory, reordered).execute(stream_, b_memory, reordered);
      stream_.wait();
      b_memory = reordered;
    }
    arguments_ = {
        {DNNL_ARG_SRC, memory(a_desc, engine_, a)}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, memory(c_desc, engine_, c)}};
  }
  void run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::unordered_map<int, memory> arguments_;
};

struct Totals {
  double ours = 0, best = 0, gflop = 0;
};

void measure(const Product& p, DType dtype, DType out, int threads, double budget, Totals& totals) {
  auto a = random_bytes(dtype, p.m * p.k), b = random_bytes(dtype, p.k * p.n), c = random_bytes(out, p.m * p.n);
  const Shape a_shape = p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k},
              b_shape = p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
  const Matmul args{.a = {a.data(), dtype, a_shape},
                    .b = {b.data(), dtype, b_shape},
                    .out = {c.data(), out, {p.m, p.n}},
                    .transpose_a = p.transpose_a,
                    .transpose_b = p.transpose_b,
                    .accumulate = p.accumulate,
                    .bias = {}};
  Peer plain(p, dtype, out, a.data(), b.data(), c.data(), false), packed(p, dtype, out, a.data(), b.data(), c.data(), true);
  std::vector<std::function<void()>> ways = {[&] { cpu::compute(args, threads); }, [&] { plain.run(); }, [&] { packed.run(); }};
  if (dtype == DType::Float32)
    ways.push_back([&] {
      dnnl::sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0f, reinterpret_cast<float*>(a.data()),
                  a_shape[1], reinterpret_cast<float*>(b.data()), b_shape[1], p.accumulate ? 1.0f : 0.0f,
                  reinterpret_cast<float*>(c.data()), p.n);
    });
  for (auto& way : ways) way();
  std::vector<std::vector<double>> times(ways.size());
  std::vector<double> ratios;
  for (double spent = 0; spent < budget || ratios.size() < 5;) {
    double best = 1e30;
    for (size_t way = 0; way < ways.size(); ++way) {
      times[way].push_back(seconds_of(ways[way]));
      spent += times[way].back();
      if (way > 0) best = std::min(best, times[way].back());
    }
    ratios.push_back(best / times[0].back());
  }
  const double gflop = 2e-9 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  std::printf("%-28s %s->%s  ours %6.0f  oneDNN plain %6.0f  packed %6.0f", p.name.c_str(),
              dtype == DType::Float32 ? "f32" : "bf16", out == DType::Float32 ? "f32" : "bf16", gflop / median(times[0]),
              gflop / median(times[1]), gflop / median(times[2]));
  std::printf("  sgemm %6.0f", times.size() > 3 ? gflop / median(times[3]) : 0.0);
  std::printf("  GFLOP/s   ours/best %.2f\n", median(ratios));
  double best = median(times[1]);
  for (size_t way = 1; way < ways.size(); ++way) best = std::min(best, median(times[way]));
  totals.ours += median(times[0]), totals.best += best, totals.gflop += gflop;
}

void measure_products(const std::vector<Product>& all, DType dtype, int threads, double budget) {
  Totals totals;
  for (const Product& p : all) {
    // Weight gradients are summed in float32; everything else has the type of the activations.
    measure(p, dtype, p.transpose_a ? DType::Float32 : dtype, threads, budget, totals);
  }
  std::printf("sum: ours %.0f GFLOP/s, oneDNN's best %.0f GFLOP/s, ratio %.3f\n\n", totals.gflop / totals.ours,
              totals.gflop / totals.best, totals.best / totals.ours);
}

double time_of(const std::function<void()>& work, double budget) {
  work();
  std::vector<double> times;
  for (double spent = 0; spent < budget || times.size() < 5; spent += times.back()) times.push_back(seconds_of(work));
  return median(times);
}

// With `document` > 0, each sequence is documents of so many tokens.
void measure_attention(int64_t sequences, int64_t tokens, int64_t heads, int64_t size, DType dtype, float rate, int threads,
                       double budget, int64_t document = 0) {
  std::vector<int32_t> firsts;
  for (int64_t row = 0; document > 0 && row < sequences * tokens; ++row)
    firsts.push_back(static_cast<int32_t>(row % tokens / document * document));
  const ConstTensorView documents =
      firsts.empty() ? ConstTensorView() : ConstTensorView{firsts.data(), DType::Int32, {sequences, tokens}};
  const int64_t elements = sequences * tokens * heads * size;
  auto qkv = random_bytes(dtype, 3 * elements), dout = random_bytes(dtype, elements), out = random_bytes(dtype, elements);
  auto dqkv = random_bytes(dtype, 3 * elements), lse = random_bytes(DType::Float32, sequences * heads * tokens);
  const Shape wide{sequences, tokens, 3 * heads * size}, narrow{sequences, tokens, heads * size};
  const TensorView log_sum_exp{lse.data(), DType::Float32, {sequences, heads, tokens}};
  const DropoutSite dropout{.rate = rate, .key = 1};
  const double forward = time_of(
      [&] {
        cpu::compute(Attention{.qkv = {qkv.data(), dtype, wide},
                               .out = {out.data(), dtype, narrow},
                               .log_sum_exp = log_sum_exp,
                               .heads = heads,
                               .key_value_heads = heads,
                               .dropout = dropout,
                               .documents = documents},
                     threads);
      },
      budget);
  const double backward = time_of(
      [&] {
        cpu::compute(AttentionBackward{.dout = {dout.data(), dtype, narrow},
                                       .qkv = {qkv.data(), dtype, wide},
                                       .out = {out.data(), dtype, narrow},
                                       .log_sum_exp = log_sum_exp,
                                       .dqkv = {dqkv.data(), dtype, wide},
                                       .heads = heads,
                                       .key_value_heads = heads,
                                       .dropout = dropout,
                                       .documents = documents},
                     threads);
      },
      budget);
  const int64_t seen = document > 0 ? document : tokens;
  const double gflop = 2e-9 * static_cast<double>(elements * (seen + 1));  // the causal half of Q K^T and P V
  std::printf(
      "attention B%ld S%ld documents of %ld N%ld D%ld %s dropout %.1f: forward %.2f ms (%.0f GFLOP/s), backward %.2f ms (%.0f "
      "GFLOP/s)\n",
      sequences, tokens, seen, heads, size, dtype == DType::Float32 ? "f32" : "bf16", static_cast<double>(rate), 1e3 * forward,
      gflop / forward, 1e3 * backward, 2.5 * gflop / backward);
}

void measure_cross_entropy(int64_t rows, int64_t vocabulary, DType dtype, int threads, double budget) {
  auto logits = random_bytes(dtype, rows * vocabulary), dlogits = logits;
  const std::vector<int32_t> targets(static_cast<size_t>(rows), 3);
  const double time = time_of(
      [&] {
        cpu::compute(CrossEntropy{.logits = {logits.data(), dtype, {rows, vocabulary}},
                                  .targets = {targets.data(), DType::Int32, {rows}},
                                  .dlogits = {dlogits.data(), dtype, {rows, vocabulary}}},
                     threads);
      },
      budget);
  const double elements = static_cast<double>(rows * vocabulary);
  std::printf("cross-entropy T%ld V%ld %s: %.2f ms, %.2f ns/element\n", rows, vocabulary,
              dtype == DType::Float32 ? "f32" : "bf16", 1e3 * time, 1e9 * time / elements);
}

void measure_pooling(const Shape& x, const Window& window, Pooling kind, DType dtype, int threads, double budget) {
  const Shape y{x[0], x[1], window.output_rows(x[2]), window.output_cols(x[3])};
  auto from = random_bytes(dtype, x.elements()), dx = from, to = random_bytes(dtype, y.elements());
  const Pool pool{.x = {from.data(), dtype, x}, .y = {to.data(), dtype, y}, .window = window, .kind = kind};
  const PoolBackward backward{
      .dy = {to.data(), dtype, y}, .x = {from.data(), dtype, x}, .dx = {dx.data(), dtype, x}, .window = window, .kind = kind};
  std::printf("%s pooling B%ld C%ld %ldx%ld window %ld stride %ld %s: forward %.2f ms, backward %.2f ms\n",
              kind == Pooling::Max ? "max" : "average", x[0], x[1], x[2], x[3], window.rows, window.stride,
              dtype == DType::Float32 ? "f32" : "bf16", 1e3 * time_of([&] { cpu::compute(pool, threads); }, budget),
              1e3 * time_of([&] { cpu::compute(backward, threads); }, budget));
}

void measure_convolution(const Shape& x, int64_t out_channels, const Window& window, DType dtype, int threads, double budget) {
  const Shape y{x[0], out_channels, window.output_rows(x[2]), window.output_cols(x[3])};
  const Shape weights{out_channels, x[1], window.rows, window.cols};
  auto from = random_bytes(dtype, x.elements()), dx = from, to = random_bytes(dtype, y.elements());
  auto weight = random_bytes(dtype, weights.elements()), bias = random_bytes(dtype, out_channels);
  auto dweight = random_bytes(DType::Float32, weights.elements()), dbias = random_bytes(DType::Float32, out_channels);
  const Convolution forward{.x = {from.data(), dtype, x},
                            .weight = {weight.data(), dtype, weights},
                            .bias = {bias.data(), dtype, {out_channels}},
                            .y = {to.data(), dtype, y},
                            .window = window};
  const ConvolutionBackwardInput input{
      .dy = {to.data(), dtype, y}, .weight = {weight.data(), dtype, weights}, .dx = {dx.data(), dtype, x}, .window = window};
  const ConvolutionBackwardWeight gradients{.dy = {to.data(), dtype, y},
                                            .x = {from.data(), dtype, x},
                                            .dweight = {dweight.data(), DType::Float32, weights},
                                            .dbias = {dbias.data(), DType::Float32, {out_channels}},
                                            .window = window};
  std::printf("convolution B%ld C%ld %ldx%ld O%ld window %ld %s: forward %.2f ms, dx %.2f ms, dweight and dbias %.2f ms\n",
              x[0], x[1], x[2], x[3], out_channels, window.rows, dtype == DType::Float32 ? "f32" : "bf16",
              1e3 * time_of([&] { cpu::compute(forward, threads); }, budget),
              1e3 * time_of([&] { cpu::compute(input, threads); }, budget),
              1e3 * time_of([&] { cpu::compute(gradients, threads); }, budget));
}

}  // namespace
}  // namespace trivet::kernels

int main(int argc, char** argv) {
  using namespace trivet;
  using namespace trivet::kernels;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double budget = argc > 2 ? std::atof(argv[2]) : 0.3;
  omp_set_num_threads(threads);  // for oneDNN, when it does its own threading
  std::printf("%d thread(s)\n", threads);
  const std::string which = argc > 3 ? argv[3] : "everything";
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    if (which == "others" || which == "images" || which == "attention") break;
    measure_products(products("3.3M", 2048, 256, 256, 2048), dtype, threads, budget);
    measure_products(products("124M", 512, 768, 50257, 128), dtype, threads, budget);
  }
  if (which == "products") return 0;
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    if (which == "images") break;
    for (float rate : {0.0f, 0.1f}) {
      measure_attention(8, 256, 8, 32, dtype, rate, threads, budget);
      measure_attention(2, 256, 12, 64, dtype, rate, threads, budget);
      measure_attention(1, 2048, 8, 128, dtype, rate, threads, budget);
    }
    // The same documents as sequences of their own and in one sequence, and one as long as all of them.
    measure_attention(32, 512, 4, 64, dtype, 0, threads, budget);
    measure_attention(1, 16384, 4, 64, dtype, 0, threads, budget, 512);
    measure_attention(1, 16384, 4, 64, dtype, 0, threads, budget);
  }
  if (which == "attention") return 0;
  for (DType dtype : {DType::Float32, DType::BFloat16}) {
    if (which == "images") break;
    measure_cross_entropy(2048, 256, dtype, threads, budget);
    measure_cross_entropy(128, 50257, dtype, threads, budget);
  }
  for (DType dtype : {DType::Float32, DType::BFloat16}) {  // examples/06_cifar10/fashion_mnist.json, and ResNet's first pooling
    measure_pooling({128, 64, 24, 24}, {.rows = 2, .cols = 2, .stride = 2}, Pooling::Max, dtype, threads, budget);
    measure_pooling({16, 64, 56, 56}, {.rows = 3, .cols = 3, .stride = 2, .padding = 1}, Pooling::Max, dtype, threads, budget);
    measure_pooling({128, 64, 24, 24}, {.rows = 2, .cols = 2, .stride = 2}, Pooling::Average, dtype, threads, budget);
    measure_convolution({128, 32, 26, 26}, 64, {.rows = 3, .cols = 3}, dtype, threads, budget);
    measure_convolution({128, 64, 12, 12}, 128, {.rows = 3, .cols = 3}, dtype, threads, budget);
  }
}
