// Products with cuBLASLt: descriptors and algorithms, looked up once for each kind of product.
//
// [Note: which algorithm]  The bits depend on the algorithm, so the choice must be the same on all ranks and in every run. It
// is the first algorithm that cuBLASLt's heuristic names, which depends on the kind of product, the library's version and the
// GPU. Another one may be faster. Measuring that during a run would let ranks choose differently, so it is done in advance
// (bench/cuda/matmul_bench --tune) and written to a file, which TRIVET_CUBLAS_TUNE names. Kinds of products that are not in the
// file use the heuristic.
//
// Sums are in float32 (float64), never TF32. K may be split only if the parts are summed in float32, in a fixed order, in the
// workspace.
#pragma once

#include <cublasLt.h>

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/product_scratch.h"

namespace trivet::kernels::cuda {

// The operation on a sum, in float32, before it is rounded: nothing (None), out = gelu(sum) and aux = sum (Forward), or
// out = sum gelu'(aux) (Backward).
enum class GeluEpilogue { None, Forward, Backward };

// out[m, n] = op(a)[m, k] op(b)[k, n] (+ out) (+ bias[n]), all row-major; rows of a are a_stride elements apart, and likewise
// for b and out. m, n, k > 0. out has the type of a or is float32; the bias has the type of out. aux has out's type and stride,
// and the stride is a multiple of 8.
struct Product {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void *out = nullptr, *aux = nullptr;
  DType dtype = DType::Float32, out_dtype = DType::Float32;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  GeluEpilogue gelu = GeluEpilogue::None;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, out_stride = 0;
};

// Everything on which the choice of an algorithm depends.
struct ProductKind {
  DType dtype = DType::Float32, out_dtype = DType::Float32;
  bool transpose_a = false, transpose_b = false, bias = false;
  GeluEpilogue gelu = GeluEpilogue::None;
  int64_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, out_stride = 0;
  int a_alignment = 1, b_alignment = 1, out_alignment = 1;  // bytes, at most 16

  auto operator<=>(const ProductKind&) const = default;  // NOLINT(modernize-use-nullptr): in the generated comparison
};
// The kind of a product, with the alignments of its real addresses.
ProductKind kind_of(const Product& product);
// "bfloat16->float32 8192x768x3072 NT bias strides 768,768,3072 alignment 16,16,16"
std::string to_string(const ProductKind& kind);

// A device's cuBLASLt. Threads may share it.
class Cublas {
 public:
  // The one of the thread's current device, made on first use and kept.
  static Cublas& of_current_device();
  // `choices`: a file of measured choices, or empty. Throws ConfigError if it is not such a file, or not for this GPU and
  // library.
  Cublas(const std::string& device_name, const std::string& choices);
  ~Cublas();

  // Enqueues the product. The workspace has kCublasWorkspaceBytes and is 256-byte aligned. Returns false if cuBLASLt has no
  // algorithm for this kind. The product may be more aligned than the kind says.
  bool multiply(const Product& product, const ProductKind& kind, void* workspace, cudaStream_t stream);

  // For measuring. algorithms() returns up to `most` algorithms in the heuristic's order; choose() replaces the chosen one;
  // line_of() returns its line in a file of choices.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const Product& product, int most);
  void choose(const Product& product, const cublasLtMatmulAlgo_t& algorithm);
  std::string line_of(const ProductKind& kind, const cublasLtMatmulAlgo_t& algorithm) const;
  std::string header() const;  // the first line of such a file

 private:
  struct Entry;  // descriptors and the algorithm of a kind
  Entry& entry_of(const ProductKind& kind, const Product& product);
  std::unique_ptr<Entry> make_entry(const ProductKind& kind, const Product& product);
  std::vector<cublasLtMatmulAlgo_t> algorithms_of(const Entry& entry, const ProductKind& kind, int most);
  void read_choices(const std::string& path);

  const std::string device_name_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, cublasLtMatmulAlgo_t> choices_;  // by the kind's text
  std::map<ProductKind, std::unique_ptr<Entry>> entries_;
};

}  // namespace trivet::kernels::cuda
