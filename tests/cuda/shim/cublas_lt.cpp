#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cublas_shim.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "runtime.h"

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_leading_dimension = 0;

  bool biased() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool uses_aux() const { return (epilogue & 128) != 0; }
};

struct cublasLtMatrixLayoutOpaque {  // column-major
  cudaDataType type;
  int64_t rows, cols, leading_dimension;
};

struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::map<cublasLtMatmulPreferenceAttributes_t, uint32_t> alignments;

  uint32_t alignment(cublasLtMatmulPreferenceAttributes_t of) const {
    const auto found = alignments.find(of);
    return found == alignments.end() ? 256 : found->second;
  }
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque;

constexpr size_t kWorkspace = 4096;  // for algorithms that split K
// The fields of cublasLtMatmulAlgo_t::data, which describe an algorithm.
enum Field { Order, Alignment, Workspace, Mark };
constexpr uint64_t kMark = 0x74726976;
enum SumOrder : uint64_t { Forwards, Backwards, EvenThenOdd, SplitK, SplitAndRounded };

std::atomic<bool> bias_is_forgotten{false}, gelu_is_forgotten{false};
std::atomic<int> heuristics{0}, products_with_gelu{0};

size_t size_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    default: return 2;
  }
}

template <typename T>
bool take(const void* value, size_t bytes, T& to) {
  if (value == nullptr || bytes != sizeof(T)) return false;
  std::memcpy(&to, value, bytes);
  return true;
}
cublasStatus_t valid(bool is) { return is ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE; }

bool known_types(const cublasLtMatmulDescOpaque& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  if (a.type != b.type || c.type != d.type) return false;
  if (a.type == CUDA_R_64F)
    return d.type == CUDA_R_64F && desc.compute == CUBLAS_COMPUTE_64F && desc.scale == CUDA_R_64F &&
           desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (desc.biased() && (a.type != d.type || bias_is_forgotten)) return false;
  if (desc.uses_aux() && (a.type != d.type || gelu_is_forgotten)) return false;
  return (d.type == a.type || d.type == CUDA_R_32F) && desc.compute == CUBLAS_COMPUTE_32F && desc.scale == CUDA_R_32F;
}

struct Sizes {
  int64_t m, n, k;
};
std::optional<Sizes> sizes_of(const cublasLtMatmulDescOpaque& desc, const Layout& a, const Layout& b, const Layout& c,
                              const Layout& d) {
  const bool ta = desc.transpose_a == CUBLAS_OP_T, tb = desc.transpose_b == CUBLAS_OP_T;
  const Sizes sizes{d.rows, d.cols, ta ? a.rows : a.cols};
  const bool fits = (ta ? a.cols : a.rows) == sizes.m && (tb ? b.rows : b.cols) == sizes.n &&
                    (tb ? b.cols : b.rows) == sizes.k && c.rows == d.rows && c.cols == d.cols;
  for (const Layout* layout : {&a, &b, &c, &d})
    if (layout->rows < 1 || layout->cols < 1 || layout->leading_dimension < layout->rows) return std::nullopt;
  return fits ? std::optional(sizes) : std::nullopt;
}

// Whether the pointers that the epilogue needs are set. The aux matrix of a GELU needs a leading dimension divisible by 8.
bool complete(const cublasLtMatmulDescOpaque& desc, const Layout& d) {
  if (desc.biased() && desc.bias == nullptr) return false;
  if (!desc.uses_aux()) return true;
  return desc.aux != nullptr && desc.aux_leading_dimension % 8 == 0 && desc.aux_leading_dimension >= d.rows;
}

bool aligned_to(const Layout& layout, uint64_t bytes) {
  return static_cast<uint64_t>(layout.leading_dimension) * size_of(layout.type) % bytes == 0;
}

bool serves(const cublasLtMatmulAlgo_t& algo, const cublasLtMatmulDescOpaque& desc, const Layout& a, const Layout& b,
            const Layout& c, const Layout& d) {
  if (algo.data[Mark] != kMark || !known_types(desc, a, b, c, d) || !sizes_of(desc, a, b, c, d) || !complete(desc, d))
    return false;
  for (const Layout* layout : {&a, &b, &c, &d})
    if (algo.data[Alignment] > size_of(layout->type) && !aligned_to(*layout, algo.data[Alignment])) return false;
  return true;
}

// ---- running, on the stream's thread

template <typename Sum>
Sum load(cudaDataType type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_64F: return static_cast<Sum>(static_cast<const double*>(data)[index]);
    case CUDA_R_32F: return static_cast<Sum>(static_cast<const float*>(data)[index]);
    case CUDA_R_16F: return static_cast<Sum>(static_cast<float>(static_cast<const __half*>(data)[index]));
    default: return static_cast<Sum>(static_cast<float>(static_cast<const __nv_bfloat16*>(data)[index]));
  }
}
template <typename Sum>
void store(cudaDataType type, void* data, int64_t index, Sum value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(data)[index] = static_cast<double>(value); return;
    case CUDA_R_32F: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case CUDA_R_16F: static_cast<__half*>(data)[index] = __half(static_cast<float>(value)); return;
    default: static_cast<__nv_bfloat16*>(data)[index] = __nv_bfloat16(static_cast<float>(value));
  }
}

// The value as it reads back from memory of this type.
template <typename Sum>
Sum rounded(cudaDataType type, Sum value) {
  double memory = 0;
  store<Sum>(type, &memory, 0, value);
  return load<Sum>(type, &memory, 0);
}

struct Call {
  cublasLtMatmulDescOpaque desc;
  Layout a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  double alpha, beta;
  uint64_t order;
  Sizes sizes;
};

template <typename Sum>
Sum dot(const Call& call, int64_t row, int64_t col) {
  const int64_t k = call.sizes.k;
  const bool ta = call.desc.transpose_a == CUBLAS_OP_T, tb = call.desc.transpose_b == CUBLAS_OP_T;
  const auto product = [&](int64_t p) {
    const int64_t a = ta ? p + row * call.a.leading_dimension : row + p * call.a.leading_dimension;
    const int64_t b = tb ? col + p * call.b.leading_dimension : p + col * call.b.leading_dimension;
    return load<Sum>(call.a.type, call.a_data, a) * load<Sum>(call.b.type, call.b_data, b);
  };
  const auto sum_of = [&](int64_t first, int64_t end, int64_t step) {
    Sum sum = 0;
    for (int64_t p = first; p < end; p += step) sum += product(p);
    return sum;
  };
  switch (call.order) {
    case Forwards: return sum_of(0, k, 1);
    case EvenThenOdd: return sum_of(0, k, 2) + sum_of(1, k, 2);
    case SplitK: return sum_of(0, k / 2, 1) + sum_of(k / 2, k, 1);
    case SplitAndRounded: return rounded(call.d.type, sum_of(0, k / 2, 1)) + rounded(call.d.type, sum_of(k / 2, k, 1));
    default: {
      Sum sum = 0;
      for (int64_t p = k; p-- > 0;) sum += product(p);
      return sum;
    }
  }
}

// The tanh form, computed in `Sum`; the result is rounded when it is stored.
template <typename Sum>
Sum gelu_slope_or_value(Sum x, bool slope) {
  const Sum root = static_cast<Sum>(0.7978845608028654), cubic = static_cast<Sum>(0.044715);
  const Sum t = std::tanh(root * (x + cubic * x * x * x));
  if (!slope) return x * (1 + t) / 2;
  return (1 + t) / 2 + x * (1 - t * t) * root * (1 + 3 * cubic * x * x) / 2;
}

template <typename Sum>
Sum through_gelu(const Call& call, int64_t row, int64_t col, Sum value) {
  const int64_t place = row + col * call.desc.aux_leading_dimension;
  if (call.desc.epilogue == CUBLASLT_EPILOGUE_DGELU)
    return value * gelu_slope_or_value(load<Sum>(call.d.type, call.desc.aux, place), true);
  store<Sum>(call.d.type, call.desc.aux, place, value);
  return gelu_slope_or_value(value, false);
}

template <typename Sum>
void multiply(const Call& call) {
  if (call.order >= SplitK) std::memset(call.workspace, 0, kWorkspace);
  for (int64_t col = 0; col < call.sizes.n; ++col)
    for (int64_t row = 0; row < call.sizes.m; ++row) {
      Sum value = static_cast<Sum>(call.alpha) * dot<Sum>(call, row, col);
      if (call.beta != 0)
        value += static_cast<Sum>(call.beta) * load<Sum>(call.c.type, call.c_data, row + col * call.c.leading_dimension);
      if (call.desc.biased()) value += load<Sum>(call.d.type, call.desc.bias, row);
      if (call.desc.uses_aux()) value = through_gelu(call, row, col, value);
      store<Sum>(call.d.type, call.d_data, row + col * call.d.leading_dimension, value);
    }
}

bool on_device(const void* data, size_t bytes) {
  cudaPointerAttributes first{}, last{};
  return cudaPointerGetAttributes(&first, data) == cudaSuccess && first.type == cudaMemoryTypeDevice &&
         cudaPointerGetAttributes(&last, static_cast<const char*>(data) + bytes - 1) == cudaSuccess &&
         last.type == cudaMemoryTypeDevice;
}
bool on_device(const void* data, const Layout& layout) {
  return on_device(data,
                   static_cast<size_t>((layout.cols - 1) * layout.leading_dimension + layout.rows) * size_of(layout.type));
}
bool aligned(const void* data, uint64_t bytes) { return reinterpret_cast<uintptr_t>(data) % bytes == 0; }

}  // namespace

namespace cuda_shim {

void forget_bias_algorithms(bool forget) { bias_is_forgotten = forget; }
void forget_gelu_algorithms(bool forget) { gelu_is_forgotten = forget; }
int gelu_epilogues() { return products_with_gelu; }
int heuristics_asked() { return heuristics; }

}  // namespace cuda_shim

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
size_t cublasLtGetVersion() { return 130100; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return valid(take(value, bytes, desc->transpose_a));
    case CUBLASLT_MATMUL_DESC_TRANSB: return valid(take(value, bytes, desc->transpose_b));
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return valid(take(value, bytes, desc->epilogue));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return valid(take(value, bytes, desc->bias));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return valid(take(value, bytes, desc->aux));
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return valid(take(value, bytes, desc->aux_leading_dimension));
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t leading_dimension) {
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return valid(take(value, bytes, preference->workspace_bytes));
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return valid(take(value, bytes, preference->reductions));
    default: return valid(take(value, bytes, preference->alignments[attribute]));
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* returned) {
  ++heuristics;
  *returned = 0;
  if (!sizes_of(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!complete(*desc, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!known_types(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  uint32_t least = 256;
  for (auto of : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    least = std::min(least, preference->alignment(of));
  // The order that comes first depends on all sizes, leading dimensions and alignments.
  uint64_t mixture = least;
  for (const Layout* layout : {a, b, d})
    mixture = mixture * 31 + static_cast<uint64_t>(layout->rows * 7 + layout->cols * 3 + layout->leading_dimension);
  std::vector<cublasLtMatmulAlgo_t> candidates;
  const uint32_t in_output = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if ((preference->reductions & in_output) != 0 && preference->workspace_bytes >= kWorkspace)
    candidates.push_back({{SplitAndRounded, 1, kWorkspace, kMark}});
  for (uint64_t alignment : {uint64_t{16}, uint64_t{1}})
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t order = (i + mixture / 5) % 4;
      if (order == SplitK &&
          ((preference->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0 || preference->workspace_bytes < kWorkspace))
        continue;
      candidates.push_back({{order, alignment, order == SplitK ? kWorkspace : 0, kMark}});
    }
  for (const cublasLtMatmulAlgo_t& algo : candidates) {
    if (*returned == requested) break;
    if (algo.data[Alignment] > 1 && least < algo.data[Alignment]) continue;
    if (!serves(algo, *desc, *a, *b, *c, *d)) continue;
    results[(*returned)++] = {algo, static_cast<size_t>(algo.data[Workspace]), CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (!serves(*algo, *desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {*algo, static_cast<size_t>(algo->data[Workspace]), CUBLAS_STATUS_SUCCESS, 1.0f, {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (algo == nullptr || !serves(*algo, *desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint64_t alignment = algo->data[Alignment];
  for (const auto& [data, layout] :
       {std::pair(a_data, a), std::pair(b_data, b), std::pair(c_data, c), std::pair(static_cast<const void*>(d_data), d)})
    if (!on_device(data, *layout) || !aligned(data, std::max<uint64_t>(alignment, size_of(layout->type))))
      return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->biased() &&
      (!on_device(desc->bias, static_cast<size_t>(d->rows) * size_of(d->type)) || !aligned(desc->bias, alignment)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->uses_aux()) {
    const Layout aux{d->type, d->rows, d->cols, desc->aux_leading_dimension};
    if (!on_device(desc->aux, aux) || !aligned(desc->aux, alignment)) return CUBLAS_STATUS_INVALID_VALUE;
    ++products_with_gelu;
  }
  if (algo->data[Workspace] > workspace_bytes ||
      (algo->data[Workspace] > 0 && (!aligned(workspace, 16) || !on_device(workspace, kWorkspace))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c_data == d_data && c->leading_dimension != d->leading_dimension) return CUBLAS_STATUS_INVALID_VALUE;
  const bool in_double = desc->compute == CUBLAS_COMPUTE_64F;
  const auto number = [&](const void* value) { return load<double>(in_double ? CUDA_R_64F : CUDA_R_32F, value, 0); };
  const Call call{*desc,
                  *a,
                  *b,
                  *c,
                  *d,
                  a_data,
                  b_data,
                  c_data,
                  d_data,
                  workspace,
                  number(alpha),
                  number(beta),
                  algo->data[Order],
                  *sizes_of(*desc, *a, *b, *c, *d)};
  const cudaError_t error = cuda_shim::call([&] {
    cuda_shim::resolve(stream)->enqueue(
        [call] { call.desc.compute == CUBLAS_COMPUTE_64F ? multiply<double>(call) : multiply<float>(call); });
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
