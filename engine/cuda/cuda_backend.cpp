#include "engine/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "comm/nccl/nccl_group.h"
#include "comm/nccl/nccl_resources.h"
#include "core/cuda/device.h"
#include "core/cuda/error.h"
#include "core/cuda/event_clock.h"
#include "core/cuda/graph.h"
#include "core/cuda/memory.h"
#include "core/cuda/streams.h"
#include "kernels/cuda/cuda_kernels.h"

namespace trivet {
namespace {

// Reducing gradients delays only the end of the step, but gathering weights delays the next kernel.
int urgency_of(pipeline::Queue queue) {
  switch (queue) {
    case pipeline::Queue::Copy: return 0;  // copies need no thread blocks
    case pipeline::Queue::Reduce: return 1;
    case pipeline::Queue::Gather: return 2;
    default: return 3;
  }
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options)
      : info_(cuda::open_device(cuda::choose_device(options.local_rank))),
        streams_(info_.index),
        memory_(cuda::make_device_allocator(info_.index)),
        pinned_(cuda::make_pinned_allocator(info_.index)),
        nccl_(options.world.size() > 1 ? std::make_unique<comm::NcclResources>(options.world, *memory_, options.meter,
                                                                               [this] { return streams_.current(); })
                                       : nullptr),
        kernels_(kernels::make_cuda_kernels({.streams = &streams_,
                                             .allocator = memory_.get(),
                                             .meter = &options.meter,
                                             .workspace_bytes = options.workspace_bytes,
                                             .after_wait = [this] { check(); }})) {}

  Device device() const override { return Device::Cuda; }
  std::string description() const override {
    return fmt::format("cuda:{} {}, {:.1f} GiB", info_.index, info_.name,
                       static_cast<double>(info_.memory_bytes) / (int64_t{1} << 30));
  }
  kernels::Kernels& kernels() override { return *kernels_; }
  Allocator& allocator() override { return *memory_; }
  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }
  Allocator& staging_allocator() override { return *pinned_; }
  std::unique_ptr<Stream> make_stream(pipeline::Queue queue, bool overlaps) override {
    return overlaps ? streams_.make_stream(urgency_of(queue)) : streams_.make_compute_stream();
  }
  std::unique_ptr<StreamClock> make_clock() override { return cuda::make_event_clock(streams_); }
  std::unique_ptr<comm::ProcessGroup> place(std::unique_ptr<comm::ProcessGroup> host) override {
    if (host->size() > 1) return comm::make_nccl_group(std::move(host), *nccl_);
    return comm::make_single_group(host->name(), [this](ConstTensorView from, TensorView to) { kernels_->copy(from, to); });
  }
  void repeat(const RepeatKey& key, const std::function<void()>& work) override { repeated_.run(key, work); }
  void close() override {
    CUDA_CHECK(cudaDeviceSynchronize());
    if (nccl_) nccl_->close();
  }

 private:
  // The kernels of an aborted operation look as if they had finished, so the watch must be asked.
  void check() {
    if (nccl_) nccl_->watch().check();
  }

  cuda::DeviceInfo info_;
  cuda::Streams streams_;
  cuda::RepeatedWork repeated_{streams_};
  std::unique_ptr<Allocator> memory_, pinned_;
  std::unique_ptr<comm::NcclResources> nccl_;
  std::unique_ptr<kernels::Kernels> kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) { return std::make_unique<CudaBackend>(options); }

}  // namespace trivet
