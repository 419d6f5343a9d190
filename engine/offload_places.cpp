#include "engine/offload_places.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "engine/rank_resources.h"

namespace trivet {
namespace {

struct OffloadFile {
  OffloadDevice device = OffloadDevice::None;
  FilePlan plan;
  std::string folder, folder_key;
  std::string name;
};

// The folder must be there even if nothing goes into the file: with another model or number of ranks something would. A disk
// that is full is no reason not to start then.
void check_folder(FileSystem& files, const zero::offload::FileStoreOptions& store) {
  try {
    zero::offload::make_file_store(files, store);
  } catch (const StorageError&) {
  }
}

// Returns null if the config asks for no file, or if the plan puts nothing into it.
std::unique_ptr<zero::offload::FileStore> open_offload_file(const OffloadFile& file, const AioConfig& aio,
                                                            const OffloadOptions& options) {
  constexpr int64_t kMaxThreads = 64;
  if (file.device != OffloadDevice::Nvme) return nullptr;
  const Log log(options.world_rank, options.world_rank == 0 ? LogLevel::Info : LogLevel::Error);
  const zero::offload::FileStoreOptions store{
      .path = fmt::format("{}/{}-rank-{}", file.folder, file.name, options.world_rank),
      .folder_key = file.folder_key,
      .capacity_bytes = std::max<int64_t>(file.plan.bytes, 1),
      .block_bytes = aio.block_size,
      .threads = static_cast<int>(std::min(kMaxThreads, aio.queue_depth * aio.intra_op_parallelism))};
  if (file.plan.bytes > 0)
    return zero::offload::make_file_store(options.files, store, [&](const std::string& text) { log.info(text); });
  check_folder(options.files, store);
  log.info(fmt::format("{}: nothing goes there, because all of it stays in memory", file.folder_key));
  return nullptr;
}

}  // namespace

OffloadPlaces::OffloadPlaces(const Config& config, const OffloadOptions& options)
    : staging_(staging_options(config)),
      weight_files_(open_offload_file({.device = config.zero.offload_param.device,
                                       .plan = options.planned.weight_file,
                                       .folder = config.zero.offload_param.nvme_path,
                                       .folder_key = "zero_optimization.offload_param.nvme_path",
                                       .name = "trivet-weights"},
                                      config.aio, options)),
      state_files_(open_offload_file({.device = config.zero.offload_optimizer.device,
                                      .plan = options.planned.state_file,
                                      .folder = config.zero.offload_optimizer.nvme_path,
                                      .folder_key = "zero_optimization.offload_optimizer.nvme_path",
                                      .name = "trivet-optimizer"},
                                     config.aio, options)),
      keeps_shards_(config.offloads_shards_of_device()),
      keeps_activations_(config.offloads_inputs()) {
  if (!config.uses_host_side()) return;
  host_kernels_ = kernels::make_cpu_kernels(options.host_threads);
  host_side_ = std::make_unique<zero::HostSide>(
      zero::HostSideOptions{.device = options.kernels,
                            .host = *host_kernels_,
                            .allocator = options.backend.staging_allocator(),
                            .to = options.backend.make_stream(pipeline::Queue::Copy, true),
                            .from = options.backend.make_stream(pipeline::Queue::Copy, true),
                            .staging_bytes = options.planned.host_staging_bytes,
                            .activation_bytes = options.planned.host_memory[MemoryCategory::Activations]});
}

OffloadPlaces::OffloadPlaces(const Config& config)
    : staging_(staging_options(config)),
      weight_files_(zero::offload::make_meta_file_store()),
      state_files_(zero::offload::make_meta_file_store()),
      keeps_shards_(config.offloads_shards_of_device()),
      keeps_activations_(config.offloads_inputs()) {
  if (!config.uses_host_side()) return;
  host_kernels_ = kernels::make_meta_kernels();
  host_side_ = std::make_unique<zero::HostSide>(*host_kernels_);
}

zero::OffloadResources OffloadPlaces::resources() const {
  return {.weights = weight_files_.get(),
          .states = state_files_.get(),
          .host = keeps_shards_ ? host_side_.get() : nullptr,
          .activations = keeps_activations_ ? host_side_.get() : nullptr,
          .staging = staging_};
}

FilePlan OffloadPlaces::counted(const zero::offload::FileStore* files) {
  if (!files) return {};
  return {files->allocated_bytes(), files->bytes_read(), files->bytes_written()};
}

}  // namespace trivet
