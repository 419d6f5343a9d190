// Tests that run on every device that their program has: on the CPU in test_kernels, on the fake device in test_cuda, on a GPU
// in test_gpu. Files that include this header belong to all three programs; their tests are TEST_P of KernelsOnEveryDevice.
//
// Kernels get their tensors in memory that the device and the host can access: HostTensor and Values, created in the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include "tests/kernels/every_way.h"

namespace trivet::kernels {

class TestDevice {
 public:
  virtual ~TestDevice() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<Kernels> make_kernels() const = 0;
  // Calls use(kernels) for each way to run kernels that may not change bits.
  virtual void every_way(const std::function<void(Kernels&)>& use) const = 0;
  virtual std::pmr::memory_resource* memory() const { return std::pmr::new_delete_resource(); }
  virtual bool tensors_begin_anywhere() const { return false; }
  // Larger tensors would take too long.
  virtual int64_t most_elements() const { return std::numeric_limits<int64_t>::max(); }
};

// Integers and doubles that kernels read or write.
template <typename T>
using Values = std::pmr::vector<T>;

template <typename T>
TensorView view_of(Values<T>& values, const Shape& shape) {
  return {values.data(), kDTypeOf<T>, shape};
}
template <typename T>
TensorView view_of(Values<T>& values) {
  return view_of(values, {static_cast<int64_t>(values.size())});
}

class KernelsOnEveryDevice : public testing::TestWithParam<const TestDevice*> {
 public:
  KernelsOnEveryDevice() : before_(std::pmr::set_default_resource(GetParam()->memory())) {
    if (GetParam()->tensors_begin_anywhere()) HostTensor::offsets.emplace();
    kernels_ = GetParam()->make_kernels();
  }
  ~KernelsOnEveryDevice() override {
    HostTensor::offsets.reset();
    std::pmr::set_default_resource(before_);
  }

  Kernels& kernels() const { return *kernels_; }
  bool on_cpu() const { return kernels_->device() == Device::Cpu; }
  bool takes_too_long(int64_t elements) const { return elements > GetParam()->most_elements(); }

  // As the function of this name, with the ways of the device.
  template <typename Run>
  std::vector<HostTensor> same_bits_every_way(const Run& run) const {
    std::vector<HostTensor> first;
    GetParam()->every_way([&](Kernels& kernels) {
      std::vector<HostTensor> result = run(kernels);
      if (first.empty()) first = result;
      EXPECT_TRUE(result == first);
    });
    return first;
  }
  // The same for kernels that promise the CPU's bits on every device.
  template <typename Run>
  std::vector<HostTensor> the_cpus_bits_every_way(const Run& run) const {
    std::vector<HostTensor> result = same_bits_every_way(run);
    if (!on_cpu()) {
      const std::vector<HostTensor> expected = run(*make_cpu_kernels(1));
      for (size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(result[i].same_values(expected[i])) << "result " << i;
    }
    return result;
  }
  // A scalar of the step. A GPU reads it in its own memory: what the host sees is not a number.
  Number number(Kernels& kernels, double value) {
    if (kernels.device() == Device::Cpu) return value;
    Values<double>& memory = numbers_[value];
    memory.assign(1, value);
    return {std::numeric_limits<double>::quiet_NaN(), memory.data()};
  }

 private:
  std::pmr::memory_resource* before_;
  std::unique_ptr<Kernels> kernels_;
  std::map<double, Values<double>> numbers_;
};

inline std::string device_name(const testing::TestParamInfo<const TestDevice*>& device) { return device.param->name(); }

}  // namespace trivet::kernels
