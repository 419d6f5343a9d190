// How products use cuBLASLt: its epilogues, its algorithms and measured choices. The fake cuBLASLt refuses what the real one
// may refuse, and answers nearly every query with a different algorithm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/error.h"
#include "kernels/cuda/products/cublas.h"
#include "kernels/workspace.h"
#include "tests/cuda/twins.h"
#include "tests/kernels/matmul_problem.h"
#include "tests/support/temporary_folder.h"

#if __has_include("cublas_shim.h")  // on the fake device
#include "cublas_shim.h"
#endif

namespace trivet::kernels::matmul_test {
namespace {

using testing::HasSubstr;

// Hands out workspaces of the requested size at the end of one large allocation that all of them share, so that a write past
// the end is found.
class Workspace {
 public:
  TensorView of(int64_t bytes) {
    if (!memory_) CUDA_CHECK(cudaMalloc(&memory_, static_cast<size_t>(kBytes)));
    if (bytes > kBytes || bytes % kWorkspaceAlignment != 0) throw std::logic_error("test: raise kBytes");
    return {static_cast<std::byte*>(memory_) + kBytes - bytes, DType::UInt8, {bytes}};
  }
  void release() {
    cudaFree(memory_);
    memory_ = nullptr;
  }

 private:
  static constexpr int64_t kBytes = kCublasWorkspaceBytes + (int64_t{1} << 20);
  void* memory_ = nullptr;
};
Workspace workspace;

class CudaMatmul : public testing::Test {
 protected:
  static void TearDownTestSuite() { workspace.release(); }
};

void run(const Matmul& args) {
  args.check();
  cuda::compute(args, {.stream = nullptr, .multiprocessors = 4, .workspace = workspace.of(workspace_bytes(args))});
  CUDA_CHECK(cudaDeviceSynchronize());
}

TEST_F(CudaMatmul, OfManyRowsWithCutsIsMadeInBlocks) {
  const int64_t cols = int64_t{4} << 20;
  EXPECT_EQ(rows_of_block(cols), 128);
  EXPECT_EQ(rows_of_block(1024), 4096);
  // With blocks of 128 rows, the workspace holds one block for each level of the tree.
  const ConstTensorView a{nullptr, DType::BFloat16, {8192, 1024}}, b{nullptr, DType::BFloat16, {1024, 4096}};
  const TensorView out{nullptr, DType::BFloat16, {8192, 4096}};
  const ProductCuts cuts{.leaves = {{{0, 512}}, {{512, 1024}}}};
  const int64_t bytes = workspace_bytes(Matmul{.a = a, .b = b, .out = out, .cuts = &cuts});
  EXPECT_EQ(bytes, kCublasWorkspaceBytes + 1024 * 512 * 2 + 4096 * 512 * 2 + 2 * 1024 * 4096 * 4);
  EXPECT_EQ(workspace_bytes(Matmul{.a = a, .b = b, .out = out}), kCublasWorkspaceBytes);
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

struct GeluCase {
  int64_t m, n, k;
  DType dtype;
  bool bias;
  int64_t offset = 0;  // elements past an aligned address, for out
  bool cuts = false;
  bool in_epilogue = false;  // cuBLASLt computes the GELU
};

std::vector<GeluCase> gelu_cases() {
  std::vector<GeluCase> cases;
  for (const DType dtype : kFloatTypes)
    for (const bool bias : {false, true}) {
      const bool narrow = size_of(dtype) == 2;
      cases.push_back({17, 24, 19, dtype, bias, 0, false, narrow});
      cases.push_back({1, 8, 5, dtype, bias, 0, false, narrow});
      cases.push_back({5, 7, 9, dtype, bias});
      cases.push_back({5, 16, 9, dtype, bias, 1});
      cases.push_back({5, 16, 8, dtype, bias, 0, true});
      cases.push_back({3, 8, 0, dtype, bias});
      cases.push_back({0, 8, 4, dtype, bias});
    }
  return cases;
}

// The operands of a product [m, k] [n, k]^T and the other tensor that its GELU reads or writes, in device memory.
struct GeluProduct {
  const GeluCase& c;
  HostTensor beside;
  DeviceTensor a, b, bias, out, other;
  ProductCuts cuts;

  GeluProduct(const GeluCase& of, bool backward)
      : c(of),
        beside(HostTensor::random(c.dtype, {c.m, c.n}, 4)),
        a(HostTensor::random(c.dtype, {c.m, c.k}, 1)),
        b(HostTensor::random(c.dtype, {c.n, c.k}, 2)),
        bias(HostTensor::random(c.dtype, {c.n}, 3)),
        out(HostTensor::poisoned(c.dtype, {c.m, c.n}), c.offset),
        other(backward ? beside : HostTensor::poisoned(c.dtype, {c.m, c.n})),
        cuts{.col_ends = {c.n}} {}
  Matmul args() const {
    Matmul args{.a = a.view(), .b = b.view(), .out = out.view(), .transpose_b = true};
    if (c.cuts) args.cuts = &cuts;
    return args;
  }
  Matmul forward() const {
    Matmul forward = args();
    forward.activated = other.view();
    if (c.bias) forward.bias = bias.view();
    return forward;
  }
  Matmul backward() const {
    Matmul backward = args();
    backward.before_gelu = other.view();
    return backward;
  }
  // Runs the product without a GELU, which leaves its result in out.
  HostTensor alone(bool with_bias) const {
    Matmul product = args();
    if (with_bias) product.bias = bias.view();
    run(product);
    return out.read();
  }
};

// How many GELUs cuBLASLt has computed in epilogues, if that can be seen, as on the fake device.
std::optional<int> gelus_in_epilogues() {
#if __has_include("cublas_shim.h")
  return cuda_shim::gelu_epilogues();
#else
  return std::nullopt;
#endif
}

void run_gelu(const Matmul& args, const GeluCase& c) {
  const std::optional<int> before = gelus_in_epilogues();
  run(args);
  if (!before) return;
  EXPECT_EQ(*gelus_in_epilogues() - *before, c.in_epilogue ? 1 : 0) << name_of(c.dtype) << " " << c.n;
}

// cuBLASLt computes the GELU of the sum before it is rounded, with a tanh that may be off by 2^-11: the result may be off by
// half of x times that. With or without the epilogue, the product may be rounded before the bias is added.
TEST_F(CudaMatmul, MakesGeluOfItsResult) {
  for (const GeluCase& c : gelu_cases()) {
    const GeluProduct earlier(c, false), p(c, false);  // the same kind: the first one's addresses may not be kept
    run(earlier.forward());
    run_gelu(p.forward(), c);
    const HostTensor product = earlier.alone(c.bias), without_bias = earlier.alone(false);
    const HostTensor out = p.out.read(), activated = p.other.read();
    EXPECT_TRUE(c.in_epilogue || out == product) << name_of(c.dtype) << " " << c.n;
    for (int64_t e = 0; e < c.m * c.n; ++e) {
      const double x = out.at(e), y = gelu(x), unit = half_unit(c.dtype);
      ASSERT_NEAR(x, product.at(e), 2 * unit * std::abs(x) + unit * std::abs(without_bias.at(e)) + 1e-5) << e;
      const double epilogue = c.in_epilogue ? unit * std::abs(x) * 2 + 0x1p-12 * std::abs(x) : 1e-6;
      ASSERT_NEAR(activated.at(e), y, unit * std::abs(y) + epilogue) << name_of(c.dtype) << " " << e;
    }
  }
}

TEST_F(CudaMatmul, GoesBackThroughGelu) {
  for (const GeluCase& c : gelu_cases()) {
    if (c.bias) continue;
    const GeluProduct p(c, true);
    const HostTensor product = p.alone(false);
    run_gelu(p.backward(), c);
    const HostTensor out = p.out.read();
    for (int64_t e = 0; e < c.m * c.n; ++e) {
      const double dy = product.at(e), expected = dy * gelu_slope(p.beside.at(e)), unit = half_unit(c.dtype);
      const double epilogue = c.in_epilogue ? 0x1p-10 : 1e-6;
      ASSERT_NEAR(out.at(e), expected, 2 * unit * std::abs(expected) + epilogue * std::abs(dy) + 1e-6)
          << name_of(c.dtype) << " " << e;
    }
    EXPECT_TRUE(p.other.read() == p.beside);  // read only
  }
}

#if __has_include("cublas_shim.h")

TEST_F(CudaMatmul, MakesGeluItselfWhereCublasLtDoesNot) {
  cuda_shim::forget_gelu_algorithms(true);
  GeluCase c{18, 24, 11, DType::BFloat16, true};
  const GeluProduct forward(c, false);
  run(forward.forward());
  const HostTensor product = forward.alone(true), activated = forward.other.read();
  for (int64_t e = 0; e < c.m * c.n; ++e)
    ASSERT_NEAR(activated.at(e), gelu(product.at(e)), half_unit(c.dtype) * std::abs(product.at(e)) + 1e-6);
  c.bias = false;
  const GeluProduct backward(c, true);
  const HostTensor dy = backward.alone(false);
  run(backward.backward());
  for (int64_t e = 0; e < c.m * c.n; ++e)
    ASSERT_NEAR(backward.out.read().at(e), dy.at(e) * gelu_slope(backward.beside.at(e)), 0x1p-7 * std::abs(dy.at(e)) + 1e-6);
  cuda_shim::forget_gelu_algorithms(false);
}

void expect_matches_double_reference(const MatmulCase& c) {
  MatmulProblem problem(c);
  const DeviceTensor a(problem.a), b(problem.b), bias(problem.bias), out(problem.out);
  Matmul args = problem.args();
  args.a = a.view(), args.b = b.view(), args.out = out.view();
  if (c.bias) args.bias = bias.view();
  run(args);
  expect_near_double_reference(problem, problem.out, out.read(), true);
}

TEST_F(CudaMatmul, AddsTheBiasItselfWhereCublasLtDoesNot) {
  cuda_shim::forget_bias_algorithms(true);
  for (const MatmulCase& c : all_kinds_of_matmul(18, 7, 11))
    if (c.bias) expect_matches_double_reference(c);
  cuda_shim::forget_bias_algorithms(false);
}

TEST_F(CudaMatmul, AsksForAnAlgorithmOncePerKind) {
  const MatmulCase c{21, 22, 23, DType::BFloat16, DType::BFloat16, false, false, false, true};
  expect_matches_double_reference(c);
  const int asked = cuda_shim::heuristics_asked();
  expect_matches_double_reference(c);
  EXPECT_EQ(cuda_shim::heuristics_asked(), asked);
}

#endif

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// A file of choices, removed at the end of the scope.
class Choices {
 public:
  explicit Choices(const std::string& text) { folder_.write("choices", text); }
  std::string path() const { return folder_.at("choices"); }

 private:
  const test::TemporaryFolder folder_;
};

class MeasuredChoices : public testing::Test {
 protected:
  static void TearDownTestSuite() { workspace.release(); }
  const HostTensor a_ = HostTensor::random(DType::Float32, {4, 33}, 1), b_ = HostTensor::random(DType::Float32, {33, 5}, 2);
  DeviceTensor da_{a_}, db_{b_}, out_{HostTensor::poisoned(DType::Float32, {4, 5})};
  const cuda::Product product_{.a = da_.view().data,
                               .b = db_.view().data,
                               .out = out_.view().data,
                               .m = 4,
                               .n = 5,
                               .k = 33,
                               .a_stride = 33,
                               .b_stride = 5,
                               .out_stride = 5};
  const cuda::ProductKind kind_ = cuda::kind_of(product_);

  HostTensor with(cuda::Cublas& cublas) {
    EXPECT_TRUE(cublas.multiply(product_, kind_, workspace.of(kCublasWorkspaceBytes).data, nullptr));
    return out_.read();
  }
};

TEST_F(MeasuredChoices, AreUsedInPlaceOfTheHeuristicsFirst) {
  cuda::Cublas plain("GPU", "");
  const auto algorithms = plain.algorithms(product_, 8);
  ASSERT_GE(algorithms.size(), 2u);
  const HostTensor first = with(plain);
  for (const auto& algorithm : algorithms) {
    const Choices file(plain.header() + "\n" + plain.line_of(kind_, algorithm) + "\n");
    cuda::Cublas tuned("GPU", file.path());
    const HostTensor result = with(tuned);
    plain.choose(product_, algorithm);
    EXPECT_EQ(result, with(plain));
    if (&algorithm == &algorithms[0]) {
      EXPECT_EQ(result, first);
    }
  }
  EXPECT_NE(with(plain), first);  // the last algorithm adds in a different order
}

TEST_F(MeasuredChoices, OfAnotherGpuOrThatAreDamagedAreRefused) {
  cuda::Cublas plain("GPU", "");
  const auto algorithm = plain.algorithms(product_, 1).at(0);
  EXPECT_EQ(error_of([] { cuda::Cublas("GPU", "/nowhere"); }), "TRIVET_CUBLAS_TUNE: cannot read /nowhere");
  {
    const Choices file(plain.header() + "\n");
    EXPECT_THAT(error_of([&] { cuda::Cublas("other GPU", file.path()); }), HasSubstr("it is for another GPU or library"));
  }
  {
    const Choices file(plain.header() + "\nfloat32->float32 4x5x33: 12 zz\n");
    EXPECT_EQ(error_of([&] { cuda::Cublas("GPU", file.path()); }),
              "TRIVET_CUBLAS_TUNE: " + file.path() +
                  ":2: expected \"kind: eight hexadecimal words\", found \"float32->float32 4x5x33: 12 zz\"");
  }
  {
    auto broken = algorithm;
    for (uint64_t& word : broken.data) word = 0;
    const Choices file(plain.header() + "\n" + plain.line_of(kind_, broken) + "\n");
    cuda::Cublas tuned("GPU", file.path());
    EXPECT_EQ(error_of([&] { with(tuned); }),
              "TRIVET_CUBLAS_TUNE: the choice for float32->float32 4x5x33 NN strides 33,5,5 "
              "alignment 16,16,16 does not work here; measure again with matmul_bench --tune");
  }
}

}  // namespace
}  // namespace trivet::kernels::matmul_test
