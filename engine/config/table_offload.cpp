// zero_optimization.offload_param.*, .offload_optimizer.*, .zenflow.*, aio.*
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

// On the CPU backend, host memory is the rank's own memory, so offloading to it moves nothing.
const char* const kElsewhere = "the value is \"nvme\", or the device has its own memory";
const char* const kAlwaysPinned = "memory that a device copies from is always page-locked";

template <typename Part>
bool moves(const Part& offload, const Config& config) {
  return offload.device != OffloadDevice::Cpu || config.compute_device() == Device::Cuda;
}

void add_offload_param(KeyTable& table) {
  using P = OffloadParamConfig;
  Section<P> param(table, "zero_optimization.offload_param", [](Config& c) -> P& { return c.zero.offload_param; });
  const auto in_files = [](const Config& c) { return c.zero.offload_param.device == OffloadDevice::Nvme; };
  const std::string when = "zero_optimization.offload_param.device is \"nvme\"";
  param.key("device", &P::device, "where sharded parameters are kept at stage 3: \"cpu\" means host memory, \"nvme\" a file")
      .nullable()
      .active_when(kElsewhere, [](const Config& c) { return moves(c.zero.offload_param, c); });
  param.key("nvme_path", &P::nvme_path, "folder for each rank's file").nullable().active_when(when, in_files);
  param
      .key("buffer_count", &P::buffer_count,
           "staging buffers per rank; each holds a shard, or a piece of one, that is read ahead of its gather")
      .at_least(1)
      .active_when(when, in_files);
  param
      .key("buffer_size", &P::buffer_size,
           "maximum elements of a staging buffer; a larger shard is read in pieces (DeepSpeed: it must fit)")
      .at_least(1)
      .deepspeed("every parameter must fit in it")
      .active_when(when, in_files);
  param
      .key("max_in_cpu", &P::max_in_cpu,
           "maximum elements per rank that stay in host memory, filled with the first blocks that fit")
      .at_least(0)
      .active_when(when, in_files);
  param.inert("pin_memory", "true", "page-lock host memory", kAlwaysPinned);
}

void add_offload_optimizer(KeyTable& table) {
  using O = OffloadOptimizerConfig;
  Section<O> optimizer(table, "zero_optimization.offload_optimizer", [](Config& c) -> O& { return c.zero.offload_optimizer; });
  const auto in_files = [](const Config& c) { return c.zero.offload_optimizer.device == OffloadDevice::Nvme; };
  const std::string when = "zero_optimization.offload_optimizer.device is \"nvme\"";
  optimizer
      .key("device", &O::device,
           "where master weights and optimizer states are kept at stages 1 to 3: \"cpu\" means host memory, \"nvme\" a file "
           "(DeepSpeed: at stage 3 only)")
      .nullable()
      .deepspeed("\"nvme\" at stage 3 only")
      .active_when(kElsewhere, [](const Config& c) { return moves(c.zero.offload_optimizer, c); });
  optimizer.key("nvme_path", &O::nvme_path, "folder for each rank's file").nullable().active_when(when, in_files);
  optimizer
      .key("ratio", &O::ratio,
           "share of the optimizer state that is offloaded, starting with the first blocks; the rest stays on the device that "
           "computes")
      .between(0, 1)
      .active_when(when + ", or the device has its own memory", [](const Config& c) {
        return c.zero.offload_optimizer.device != OffloadDevice::None && moves(c.zero.offload_optimizer, c);
      });
  optimizer
      .key("buffer_count", &O::buffer_count,
           "staging buffers, each for one tensor (master weights or a state) of a sub-group of sub_group_size elements; "
           "pipeline_read and pipeline_write each need another set, in addition to that of the sub-group being updated")
      .at_least(1)
      .active_when(when, in_files);
  optimizer.key("pipeline_read", &O::pipeline_read, "read a sub-group while the previous one is updated")
      .active_when(when, in_files);
  optimizer.key("pipeline_write", &O::pipeline_write, "write a sub-group while the next one is updated")
      .active_when(when, in_files);
  optimizer.inert("pin_memory", "true", "page-lock host memory", kAlwaysPinned);
  optimizer.inert("fast_init", "false", "skip the first transfer",
                  "a new file reads as zeros, so initial states are never written");
  optimizer.unused("super_offload", "false", "SuperOffload");
  optimizer.inert("cpuadam_cores_perc", "0.8", "SuperOffload: share of the cores", "SuperOffload is not implemented")
      .between(0, 1);
}

void add_aio(KeyTable& table) {
  Section<AioConfig> aio(table, "aio", [](Config& c) -> AioConfig& { return c.aio; });
  const auto in_files = [](const Config& c) { return c.offloads_to_files(); };
  const std::string when = "zero_optimization.offload_optimizer.device or .offload_param.device is \"nvme\"";
  aio.key("block_size", &AioConfig::block_size, "bytes of one read or write, rounded up to a multiple of 4096")
      .at_least(1)
      .active_when(when, in_files);
  aio.key("queue_depth", &AioConfig::queue_depth,
          "reads and writes in flight at once, multiplied by intra_op_parallelism; each takes a thread that waits for the "
          "disk, with at most 64 threads per file")
      .at_least(1)
      .active_when(when, in_files);
  aio.key("intra_op_parallelism", &AioConfig::intra_op_parallelism, "see queue_depth").at_least(1).active_when(when, in_files);
  aio.custom(
         "thread_count", KeyType::Integer, "older name of intra_op_parallelism",
         [](Config& c, const JsonNode& node) { c.aio.intra_op_parallelism = node.integer; },
         [](const Config& c) { return std::to_string(c.aio.intra_op_parallelism); })
      .at_least(1)
      .alias_of("aio.intra_op_parallelism")
      .active_when(when, in_files);
  aio.inert("single_submit", "false", "submit requests one by one", "each request is a system call of its own");
  aio.inert("overlap_events", "true", "overlap submission and completion", "requests never wait for each other");
  aio.unused("use_gds", "false", "GPUDirect Storage");
}

void add_zenflow(KeyTable& table) {
  SectionBase zenflow(table, "zero_optimization.zenflow");
  table.add(Feature{.section = "zero_optimization.zenflow", .name = "ZenFlow", .changes_weights = true, .on_when_empty = true});
  zenflow.unsupported("topk_ratio", "0.1", "ZenFlow: share of columns updated at once");
  zenflow.unsupported("select_strategy", "\"auto\"", "ZenFlow: when columns are chosen");
  zenflow.unsupported("select_interval", "\"auto\"", "ZenFlow: how often columns are chosen").type(KeyType::Any);
  zenflow.unsupported("update_interval", "\"auto\"", "ZenFlow: how often the rest is updated").type(KeyType::Any);
  zenflow.unsupported("overlap_step", "false", "ZenFlow: overlap the update of the rest");
  zenflow.unsupported("offload", "false", "ZenFlow: offload the selection");
  zenflow.unsupported("auto_ratio", "0.99", "ZenFlow: target of the automatic choice");
  zenflow.unsupported("full_warm_up_rounds", "0", "ZenFlow: rounds with full updates");
  zenflow.unsupported("pt_reserved_cores_perc", "0.5", "ZenFlow: share of the cores left to PyTorch");
}

}  // namespace

void add_offload_keys(KeyTable& table) {
  add_offload_param(table);
  add_offload_optimizer(table);
  add_zenflow(table);
  add_aio(table);
}

}  // namespace trivet::config
