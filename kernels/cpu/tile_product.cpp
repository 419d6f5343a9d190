#include "kernels/cpu/tile_product.h"

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "kernels/cpu/numbers.h"
#include "kernels/cpu/scratch.h"

namespace trivet::kernels::cpu {
namespace {

using dnnl::memory;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& this_threads_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

bool has(dnnl::cpu_isa isa) {
  // The values are bit sets of features (dnnl_types.h).
  const auto features = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), needed = static_cast<unsigned>(isa);
  return (features & needed) == needed;
}

// True if the processor multiplies bfloat16. If it does not, converting to float32 first is faster than oneDNN's emulation.
bool multiplies_bfloat16() {
  static const bool yes = has(dnnl::cpu_isa::avx512_core_bf16);
  return yes;
}

memory::data_type type_of(DType dtype) { return dtype == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32; }

// A oneDNN product of bfloat16 for one combination of sizes, strides and targets. It is made and used by one thread, in a
// parallel region where oneDNN has only that thread.
class BFloat16Product {
 public:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, DType, bool, bool, DType>;

  static Key key_of(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& c) {
    return {size.m,         size.n,   size.k,  a.row_stride(), a.col_stride(),    b.row_stride(),
            b.col_stride(), c.stride, c.dtype, c.accumulate,   c.bias != nullptr, c.bias_dtype};
  }

  BFloat16Product(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& c) {
    const memory::desc a_desc({size.m, size.k}, memory::data_type::bf16, memory::dims{a.row_stride(), a.col_stride()});
    const memory::desc b_desc({size.k, size.n}, memory::data_type::bf16, memory::dims{b.row_stride(), b.col_stride()});
    const memory::desc c_desc({size.m, size.n}, type_of(c.dtype), memory::dims{c.stride, 1});
    const memory::desc bias({1, size.n}, type_of(c.bias_dtype), memory::dims{size.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (c.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    using Description = dnnl::matmul::primitive_desc;
    const Description description = c.bias ? Description(cpu_engine(), a_desc, b_desc, bias, c_desc, attributes)
                                           : Description(cpu_engine(), a_desc, b_desc, c_desc, attributes);
#else
    const auto wanted = c.bias ? dnnl::matmul::desc(a_desc, b_desc, bias, c_desc) : dnnl::matmul::desc(a_desc, b_desc, c_desc);
    const dnnl::matmul::primitive_desc description(wanted, attributes, cpu_engine());
#endif
    product_ = dnnl::matmul(description);
    add(DNNL_ARG_SRC, a_desc);
    add(DNNL_ARG_WEIGHTS, b_desc);
    add(DNNL_ARG_DST, c_desc);
    add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (c.bias) add(DNNL_ARG_BIAS, bias);
    scratchpad_bytes_ = static_cast<int64_t>(description.scratchpad_desc().get_size());
  }

  void run(const Operand& a, const Operand& b, const TileTarget& c, Scratch& scratch) {
    arguments_.at(DNNL_ARG_SRC).set_data_handle(const_cast<void*>(a.data));
    arguments_.at(DNNL_ARG_WEIGHTS).set_data_handle(const_cast<void*>(b.data));
    arguments_.at(DNNL_ARG_DST).set_data_handle(c.data);
    arguments_.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.reserve(scratchpad_bytes_));
    if (c.bias) arguments_.at(DNNL_ARG_BIAS).set_data_handle(const_cast<void*>(c.bias));
    product_.execute(this_threads_stream(), arguments_);
    this_threads_stream().wait();
  }

 private:
  void add(int argument, const memory::desc& description) {
    arguments_.emplace(argument, memory(description, cpu_engine(), nullptr));
  }

  dnnl::matmul product_;
  std::unordered_map<int, memory> arguments_;
  int64_t scratchpad_bytes_ = 0;
};

constexpr size_t kMostProducts = 400;

void bfloat16_product(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& c) {
  thread_local std::map<BFloat16Product::Key, BFloat16Product> products;
  thread_local Scratch scratch;
  const BFloat16Product::Key key = BFloat16Product::key_of(size, a, b, c);
  auto found = products.find(key);
  // Experts have other numbers of rows in every step, and a product takes some 50 KiB.
  if (found == products.end() && products.size() >= kMostProducts) products.clear();
  if (found == products.end()) found = products.emplace(key, BFloat16Product(size, a, b, c)).first;
  found->second.run(a, b, c, scratch);
}

void float32_product(const TileSize& size, const Operand& a, const Operand& b, float* c, int64_t c_stride, bool accumulate) {
  const auto status = dnnl::sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', size.m, size.n, size.k, 1.0f,
                                  static_cast<const float*>(a.data), a.stride, static_cast<const float*>(b.data), b.stride,
                                  accumulate ? 1.0f : 0.0f, c, c_stride);
  if (status != dnnl::status::success) throw std::logic_error("matmul: oneDNN failed to compute a float32 product");
}

// Converts `rows` x `cols` elements of op(x) to a dense row-major tile.
template <typename Sum>
void convert(const Operand& from, int64_t rows, int64_t cols, Sum* to) {
  dispatch_float(from.dtype, [&]<typename T>() {
    const T* data = static_cast<const T*>(from.data);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col)
        to[row * cols + col] = widen<Sum>(data[row * from.row_stride() + col * from.col_stride()]);
  });
}

void dense_product(const TileSize& size, const float* a, const float* b, float* c, int64_t c_stride, bool accumulate) {
  float32_product(size, {a, DType::Float32, size.k}, {b, DType::Float32, size.n}, c, c_stride, accumulate);
}

void dense_product(const TileSize& size, const double* a, const double* b, double* c, int64_t c_stride, bool accumulate) {
  for (int64_t i = 0; i < size.m; ++i) {
    double* out = c + i * c_stride;
    if (!accumulate) std::fill_n(out, size.n, 0.0);
    for (int64_t p = 0; p < size.k; ++p)
      for (int64_t j = 0; j < size.n; ++j) out[j] += a[i * size.k + p] * b[p * size.n + j];
  }
}

// Multiplies types that are converted first: a strip of K at a time, so that the converted tiles stay in the cache.
template <typename Sum>
void converted_product(const TileSize& size, const Operand& a, const Operand& b, Sum* c, int64_t c_stride, bool accumulate) {
  constexpr int64_t kStrip = 512;
  thread_local Scratch a_scratch, b_scratch;
  for (int64_t first = 0; first < size.k; first += kStrip) {
    const int64_t strip = std::min(kStrip, size.k - first);
    Sum* a_tile = a_scratch.reserve_elements<Sum>(size.m * strip);
    Sum* b_tile = b_scratch.reserve_elements<Sum>(strip * size.n);
    convert(a.at(0, first), size.m, strip, a_tile);
    convert(b.at(first, 0), strip, size.n, b_tile);
    dense_product({size.m, size.n, strip}, a_tile, b_tile, c, c_stride, accumulate || first > 0);
  }
}

template <typename Sum>
void empty_sums(const TileSize& size, Sum* c, int64_t c_stride) {
  for (int64_t row = 0; row < size.m; ++row) std::fill_n(c + row * c_stride, size.n, Sum{0});
}

}  // namespace

void tile_product(const TileSize& size, const Operand& a, const Operand& b, float* c, int64_t c_stride, bool accumulate) {
  if (size.k == 0 && !accumulate) return empty_sums(size, c, c_stride);
  if (size.k == 0) return;
  if (a.dtype == DType::Float32) return float32_product(size, a, b, c, c_stride, accumulate);
  if (a.dtype == DType::BFloat16 && multiplies_bfloat16())
    return bfloat16_product(size, a, b, {c, DType::Float32, c_stride, accumulate});
  converted_product(size, a, b, c, c_stride, accumulate);
}

void tile_product(const TileSize& size, const Operand& a, const Operand& b, double* c, int64_t c_stride, bool accumulate) {
  if (size.k == 0 && !accumulate) return empty_sums(size, c, c_stride);
  converted_product(size, a, b, c, c_stride, accumulate);
}

// oneDNN's kernels for AVX2 take 6 rows at a time, and some 12; what is left has another order of sums. Those for AVX-512 have
// one for fewer than 16 rows.
TileRows tile_rows() {
  static const bool wide = has(dnnl::cpu_isa::avx512_core);
  return wide ? TileRows{16, 256} : TileRows{12, 240};
}

bool complete_tile(const TileSize& size, const Operand& a, const Operand& b, const TileTarget& target) {
  const auto known = [](DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Float32; };
  // Some implementations in oneDNN round twice when they accumulate into bfloat16.
  const bool adds_to_narrow = target.accumulate && target.dtype == DType::BFloat16;
  if (a.dtype != DType::BFloat16 || !multiplies_bfloat16() || size.k == 0 || adds_to_narrow) return false;
  if (!known(target.dtype) || (target.bias && !known(target.bias_dtype))) return false;
  bfloat16_product(size, a, b, target);
  return true;
}

}  // namespace trivet::kernels::cpu
