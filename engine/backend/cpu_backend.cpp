#include "engine/backend/backend.h"

namespace trivet {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : kernels_(kernels::make_cpu_kernels(threads)) {}

  Device device() const override { return Device::Cpu; }
  std::string description() const override { return "cpu"; }
  kernels::Kernels& kernels() override { return *kernels_; }
  Allocator& allocator() override { return host_allocator(); }
  Allocator& staging_allocator() override { return host_allocator(); }
  std::unique_ptr<Stream> make_stream(pipeline::Queue queue, bool overlaps) override {
    return overlaps ? make_thread_stream("trivet." + std::string(queue_name(queue))) : make_inline_stream();
  }
  std::unique_ptr<StreamClock> make_clock() override { return make_host_clock(); }
  std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) override { return host; }

 private:
  std::unique_ptr<kernels::Kernels> kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace trivet
