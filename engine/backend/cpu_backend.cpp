#include "engine/backend/backend.h"

namespace trivet {
namespace {

const char* thread_name(StreamUse use) {
  switch (use) {
    case StreamUse::Control: return "trivet.control";
    case StreamUse::Gather: return "trivet.gather";
    case StreamUse::Reduce: return "trivet.reduce";
    case StreamUse::Tensor: return "trivet.tensor";
    case StreamUse::Link: return "trivet.link";
    case StreamUse::Copy: return "trivet.copy";
  }
  return "";
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : kernels_(kernels::make_cpu_kernels(threads)) {}

  Device device() const override { return Device::Cpu; }
  std::string description() const override { return "cpu"; }
  kernels::Kernels& kernels() override { return *kernels_; }
  Allocator& allocator() override { return host_allocator(); }
  Allocator& staging_allocator() override { return host_allocator(); }
  std::unique_ptr<Stream> make_stream(StreamUse use, bool overlaps) override {
    return overlaps ? make_thread_stream(thread_name(use)) : make_inline_stream();
  }
  std::unique_ptr<StreamClock> make_clock() override { return make_host_clock(); }
  std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) override { return host; }

 private:
  std::unique_ptr<kernels::Kernels> kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace trivet
