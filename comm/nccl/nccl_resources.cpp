#include "comm/nccl/nccl_resources.h"

#include <numeric>
#include <vector>

#include "comm/nccl/places.h"
#include "comm/nccl_network.h"
#include "core/cuda/error.h"

namespace trivet::comm {
namespace {

std::unique_ptr<ProcessGroup> group_of_watches(ProcessGroup& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.subgroup(all, "nccl.watch");
}

int multiprocessors_of_current_device() {
  int device = 0, count = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace

NcclResources::NcclResources(ProcessGroup& world, Allocator& memory, MemoryMeter& meter,
                             const std::function<cudaStream_t()>& stream_of_now, const NcclOptions& options)
    : memory_(memory),
      meter_(meter),
      current_stream_(stream_of_now),
      options_(options),
      world_rank_(world.rank()),
      multiprocessors_(multiprocessors_of_current_device()) {
  check_nccl_files();
  const GpuPlace place = this_gpu_place();
  host_ = place.host;
  const std::vector<GpuPlace> places = gather_places(world, place);
  check_places(places, shares_gpu());
  if (any_shares_a_gpu(places)) prepare_shared_gpu(world_rank_);  // turns off fast paths between GPUs
  watch_ = std::make_unique<NcclWatch>(group_of_watches(world), WatchOptions{options.heartbeat, options.operation_deadline});
}

Buffer NcclResources::buffer(int64_t bytes) { return Buffer(memory_, meter_, MemoryCategory::Buffers, DType::UInt8, {bytes}); }

}  // namespace trivet::comm
