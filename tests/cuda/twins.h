// Runs kernels on the device and on the CPU with the same arguments in both memories, and compares the results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/cpu/math.h"
#include "kernels/cuda/math.h"
#include "kernels/workspace.h"
#include "tests/cuda/device_tensor.h"
#include "tests/kernels/every_way.h"

#if __has_include("shim.h")  // on the fake device
#include "shim.h"
#endif

namespace trivet::kernels {

// The squares of one tensor: cpu::compute(OneSquare{{x, scale, block}, sum}, threads).
struct OneSquare {
  Squares term;
  TensorView sum;
  operator SumOfSquares() const { return {std::span(&term, 1), sum}; }
};

// Calls body() with every order in which the fake device can run threads; on a GPU, calls it once.
inline void in_every_order(const std::function<void()>& body) {
#if __has_include("shim.h")
  using cuda_shim::Order;
  for (const Order order : {Order::InOrder, Order::Reversed, Order::Shuffled}) {
    cuda_shim::Configuration configuration = cuda_shim::configuration();
    configuration.order = order;
    const cuda_shim::Configured configured(configuration);
    body();
  }
#else
  body();
#endif
}

// A tensor in host memory and in device memory. On the device it begins `elements_before` elements after an aligned address.
class Twin {
 public:
  Twin() = default;  // absent
  explicit Twin(HostTensor host, int64_t elements_before = 0)
      : host_(std::move(host)), device_(std::make_unique<DeviceTensor>(host_, elements_before)) {}

  static Twin random(DType dtype, const Shape& shape, uint64_t seed, int64_t elements_before = 0) {
    return Twin(HostTensor::random(dtype, shape, seed), elements_before);
  }
  static Twin poisoned(DType dtype, const Shape& shape, int64_t elements_before = 0) {
    return Twin(HostTensor::poisoned(dtype, shape), elements_before);
  }
  // A tensor of bytes, words or token ids.
  template <typename T>
  static Twin of(const std::vector<T>& values, const Shape& shape) {
    HostTensor host(kDTypeOf<T>, shape);
    if (!values.empty()) std::memcpy(host.view().data, values.data(), values.size() * sizeof(T));
    return Twin(std::move(host));
  }

  TensorView host() { return device_ ? host_.view() : TensorView{}; }
  TensorView device() const { return device_ ? device_->view() : TensorView{}; }
  const HostTensor& expected() const { return host_; }
  HostTensor read() const { return device_->read(); }

  void expect_same_bits(const std::string& what) const {
    const HostTensor got = read();
    if (got == host_) return;
    if (!is_float(got.view().dtype)) {
      FAIL() << what << ": bytes differ";
      return;
    }
    for (int64_t e = 0; e < got.elements(); ++e)
      ASSERT_EQ(got.at(e), host_.at(e)) << what << ", element " << e << " of " << to_string(got.view().shape);
    FAIL() << what << ": a zero has the wrong sign";
  }
  // |device - CPU| <= absolute + relative |CPU|; NaN where the CPU has NaN.
  void expect_near(const std::string& what, double absolute, double relative) const {
    const HostTensor got = read();
    for (int64_t e = 0; e < got.elements(); ++e) {
      const double got_here = got.at(e), expected_here = host_.at(e);
      if (got_here == expected_here || (std::isnan(got_here) && std::isnan(expected_here))) continue;
      ASSERT_NEAR(got_here, expected_here, absolute + relative * std::abs(expected_here)) << what << ", element " << e;
    }
  }

 private:
  HostTensor host_;
  std::unique_ptr<DeviceTensor> device_;
};

// Calls cpu(view) and device(view, launch); view(twin) gives the tensor in the memory of each. The workspace has `bytes` bytes.
template <typename Cpu, typename OnDevice>
void run_twins(int64_t bytes, const Cpu& cpu, const OnDevice& device) {
  cpu([](Twin& twin) { return twin.host(); });
  const TestLaunch launch(bytes);
  device([](Twin& twin) { return twin.device(); }, launch.launch());
  CUDA_CHECK(cudaDeviceSynchronize());
}

template <typename Args>
void compute_on_cpu(const Args& args) {
  if constexpr (std::is_same_v<Args, Adam>)
    cpu::compute(AdamUpdates{std::span(&args, 1)}, 1);
  else
    cpu::compute(args, 1);
}
template <typename Args>
void compute_on_device(const Args& args, const cuda::Launch& launch) {
  if constexpr (std::is_same_v<Args, Adam>)
    cuda::compute(AdamUpdates{std::span(&args, 1)}, launch);
  else
    cuda::compute(args, launch);
}

// make(view) returns the Args of both kernels.
template <typename Args, typename Make>
void run_twins(const Make& make) {
  const Args on_host = make([](Twin& twin) { return twin.host(); });
  on_host.check();
  int64_t bytes = 0;
  if constexpr (requires { workspace_bytes(on_host); }) bytes = workspace_bytes(on_host);
  run_twins(
      bytes, [&](const auto&) { compute_on_cpu(on_host); },
      [&](const auto& view, const cuda::Launch& launch) { compute_on_device(make(view), launch); });
}

// A scalar of the step: its value for the host; for the device NaN, and the address of the value in its memory.
template <typename View>
Number number(const View& view, Twin& value) {
  const TensorView memory = view(value);
  if (memory.data == value.host().data) return value.expected().at(0);
  return {NAN, static_cast<const double*>(memory.data)};
}
inline Twin number_of(double value) { return Twin::of<double>({value}, {1}); }

inline std::string text(DType dtype) { return std::string(name_of(dtype)); }

}  // namespace trivet::kernels
