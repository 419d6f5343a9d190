#include "kernels/cuda/products/cublas.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call, const std::string& during) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(ExitCode::Internal,
                    fmt::format("cuda: {}: {}: {}: {} (cuBLASLt {})", during, call, cublasLtGetStatusName(status),
                                cublasLtGetStatusString(status), cublasLtGetVersion()));
}
#define CUBLAS_CHECK(call, during) check((call), #call, (during))

template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle) destroy(handle);
  }
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::Float64: return CUDA_R_64F;
    case DType::BFloat16: return CUDA_R_16BF;
    case DType::Float16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

int alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  int alignment = 16;  // no kernel benefits from more
  while (address % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

constexpr const char* kHeader = "trivet measured choices of cuBLASLt";

}  // namespace

ProductKind kind_of(const Product& p) {
  int out_alignment = alignment_of(p.out);
  // cuBLASLt has no separate alignment for the bias and aux.
  if (p.bias) out_alignment = std::min(out_alignment, alignment_of(p.bias));
  if (p.aux) out_alignment = std::min(out_alignment, alignment_of(p.aux));
  return {.dtype = p.dtype,
          .out_dtype = p.out_dtype,
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .bias = p.bias != nullptr,
          .gelu = p.gelu,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .a_stride = p.a_stride,
          .b_stride = p.b_stride,
          .out_stride = p.out_stride,
          .a_alignment = alignment_of(p.a),
          .b_alignment = alignment_of(p.b),
          .out_alignment = out_alignment};
}

std::string to_string(const ProductKind& kind) {
  constexpr const char* kGelu[] = {"", " gelu", " gelu'"};
  return fmt::format("{}->{} {}x{}x{} {}{}{}{} strides {},{},{} alignment {},{},{}", name_of(kind.dtype),
                     name_of(kind.out_dtype), kind.m, kind.n, kind.k, kind.transpose_a ? 'T' : 'N',
                     kind.transpose_b ? 'T' : 'N', kind.bias ? " bias" : "", kGelu[static_cast<int>(kind.gelu)], kind.a_stride,
                     kind.b_stride, kind.out_stride, kind.a_alignment, kind.b_alignment, kind.out_alignment);
}

// [Note: rows and columns]  cuBLASLt's matrices are column-major, and our row-major matrices read that way are transposes. So
// we request out^T[n, m] = op(b)^T[n, k] op(a)^T[k, m]: our b is its A, our a is its B, and the transposes stay the same. The
// bias, which belongs to the columns of out, then belongs to the rows of its D, as its epilogue requires.
struct Cublas::Entry {
  std::string text;
  Description description;
  Layout a, b, out;
  std::optional<cublasLtMatmulAlgo_t> algorithm;
};

Cublas::Cublas(const std::string& device_name, const std::string& choices) : device_name_(device_name) {
  if (!choices.empty()) read_choices(choices);
  CUBLAS_CHECK(cublasLtCreate(&handle_), "starting cuBLASLt");  // last, so that an exception above leaks no handle
}

Cublas::~Cublas() { cublasLtDestroy(handle_); }

// This global state is a cache for the library: its contents depend only on the products requested.
Cublas& Cublas::of_current_device() {
  static std::mutex mutex;
  // It is never destroyed, because at the end of a program CUDA may be gone already.
  static auto& of_devices = *new std::map<int, std::unique_ptr<Cublas>>;
  int device = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  auto& cublas = of_devices[device];
  if (!cublas) {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    const char* choices = std::getenv("TRIVET_CUBLAS_TUNE");
    cublas = std::make_unique<Cublas>(properties.name, choices ? choices : "");
  }
  return *cublas;
}

namespace {

cublasLtMatmulPreference_t fill(Preference& preference, const ProductKind& kind, const std::string& during) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle), during);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value), during);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCublasWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(kind.b_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(kind.a_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(kind.out_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(kind.out_alignment));
  return preference.handle;
}

cublasLtEpilogue_t epilogue_of(const ProductKind& kind) {
  switch (kind.gelu) {
    case GeluEpilogue::Forward: return kind.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GeluEpilogue::Backward: return CUBLASLT_EPILOGUE_DGELU;
    case GeluEpilogue::None: break;
  }
  return kind.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The layout of a row-major x[rows, cols], read as a column-major matrix.
void make_layout(Layout& layout, DType dtype, int64_t rows, int64_t cols, int64_t stride, const std::string& during) {
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout.handle, type_of(dtype), static_cast<uint64_t>(cols),
                                          static_cast<uint64_t>(rows), stride),
               during);
}

}  // namespace

std::unique_ptr<Cublas::Entry> Cublas::make_entry(const ProductKind& kind, const Product& product) {
  auto entry = std::make_unique<Entry>();
  const std::string& during = entry->text = to_string(kind);
  const bool in_double = kind.dtype == DType::Float64;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&entry->description.handle, in_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        in_double ? CUDA_R_64F : CUDA_R_32F),
               during);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(entry->description.handle, attribute, &value, sizeof value), during);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, kind.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, kind.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(kind));
  if (kind.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
  if (kind.gelu != GeluEpilogue::None) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kind.out_stride);
  }
  const auto [a_rows, a_cols] = kind.transpose_a ? std::pair(kind.k, kind.m) : std::pair(kind.m, kind.k);
  const auto [b_rows, b_cols] = kind.transpose_b ? std::pair(kind.n, kind.k) : std::pair(kind.k, kind.n);
  make_layout(entry->a, kind.dtype, a_rows, a_cols, kind.a_stride, during);
  make_layout(entry->b, kind.dtype, b_rows, b_cols, kind.b_stride, during);
  make_layout(entry->out, kind.out_dtype, kind.m, kind.n, kind.out_stride, during);
  return entry;
}

std::vector<cublasLtMatmulAlgo_t> Cublas::algorithms_of(const Entry& entry, const ProductKind& kind, int most) {
  Preference preference;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, entry.description.handle, entry.b.handle, entry.a.handle, entry.out.handle,
                                     entry.out.handle, fill(preference, kind, entry.text), most, results.data(), &count);
  // If cuBLASLt does not support an epilogue, small kernels of our own do its work.
  const bool refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_INVALID_VALUE && kind.gelu != GeluEpilogue::None);
  if (!refused) check(status, "cublasLtMatmulAlgoGetHeuristic", entry.text);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

std::vector<cublasLtMatmulAlgo_t> Cublas::algorithms(const Product& product, int most) {
  const ProductKind kind = kind_of(product);
  return algorithms_of(*make_entry(kind, product), kind, most);
}

Cublas::Entry& Cublas::entry_of(const ProductKind& kind, const Product& product) {
  auto& entry = entries_[kind];
  if (entry) return *entry;
  entry = make_entry(kind, product);
  const auto measured = choices_.find(entry->text);
  if (measured != choices_.end()) {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, entry->description.handle, entry->b.handle, entry->a.handle,
                                                          entry->out.handle, entry->out.handle, &measured->second, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<size_t>(kCublasWorkspaceBytes))
      throw ConfigError(
          fmt::format("TRIVET_CUBLAS_TUNE: the choice for {} does not work here; measure again with "
                      "matmul_bench --tune",
                      measured->first));
    entry->algorithm = measured->second;
  } else if (const auto found = algorithms_of(*entry, kind, 1); !found.empty()) {
    entry->algorithm = found[0];
  }
  return *entry;
}

void Cublas::choose(const Product& product, const cublasLtMatmulAlgo_t& algorithm) {
  const std::lock_guard lock(mutex_);
  entry_of(kind_of(product), product).algorithm = algorithm;
}

bool Cublas::multiply(const Product& product, const ProductKind& kind, void* workspace, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);  // bias and aux are set in a description that threads share
  Entry& entry = entry_of(kind, product);
  if (!entry.algorithm) return false;
  const std::string& during = entry.text;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(entry.description.handle, attribute, &pointer, sizeof pointer), during);
  };
  if (product.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
  if (product.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.aux);
  const float float_one = 1, float_beta = product.accumulate ? 1 : 0;
  const double double_one = 1, double_beta = product.accumulate ? 1 : 0;
  const bool in_double = product.dtype == DType::Float64;
  const void* one = in_double ? static_cast<const void*>(&double_one) : &float_one;
  const void* beta = in_double ? static_cast<const void*>(&double_beta) : &float_beta;
  CUBLAS_CHECK(cublasLtMatmul(handle_, entry.description.handle, one, product.b, entry.b.handle, product.a, entry.a.handle,
                              beta, product.out, entry.out.handle, product.out, entry.out.handle, &*entry.algorithm, workspace,
                              static_cast<size_t>(kCublasWorkspaceBytes), stream),
               during);
  return true;
}

// ---- Files of choices: a header that names their GPU and library, then lines "kind: eight hexadecimal words"

std::string Cublas::line_of(const ProductKind& kind, const cublasLtMatmulAlgo_t& algorithm) const {
  std::string line = to_string(kind) + ":";
  for (uint64_t word : algorithm.data) line += fmt::format(" {:016x}", word);
  return line;
}

std::string Cublas::header() const { return fmt::format("{}: {}, cuBLASLt {}", kHeader, device_name_, cublasLtGetVersion()); }

void Cublas::read_choices(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) throw ConfigError(fmt::format("TRIVET_CUBLAS_TUNE: cannot read {}", path));
  if (line != header())
    throw ConfigError(
        fmt::format("TRIVET_CUBLAS_TUNE: {} begins with \"{}\", not \"{}\": it is for another GPU or library; "
                    "measure again with matmul_bench --tune",
                    path, line, header()));
  for (int number = 2; std::getline(file, line); ++number) {
    const size_t colon = line.find(": ");
    std::istringstream words(colon == std::string::npos ? "" : line.substr(colon + 2));
    cublasLtMatmulAlgo_t algorithm{};
    for (uint64_t& word : algorithm.data) words >> std::hex >> word;
    if (!words)
      throw ConfigError(fmt::format("TRIVET_CUBLAS_TUNE: {}:{}: expected \"kind: eight hexadecimal words\", found \"{}\"", path,
                                    number, line));
    choices_[line.substr(0, colon)] = algorithm;
  }
}

}  // namespace trivet::kernels::cuda
