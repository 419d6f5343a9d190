// zero_optimization.offload_param.*, .offload_optimizer.*, .zenflow.*, aio.*
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

const char* const kNoOffload = "nothing is offloaded";

void add_offload_param(KeyTable& table) {
  Section<OffloadConfig> param(table, "zero_optimization.offload_param",
                               [](Config& c) -> OffloadConfig& { return c.zero.offload_param; });
  param.key("device", &OffloadConfig::device, "where parameters are kept; only \"none\" in this version").nullable();
  param.key("nvme_path", &OffloadConfig::nvme_path, "folder on the NVMe drive")
      .nullable()
      .active_when("zero_optimization.offload_param.device is \"nvme\"",
                   [](const Config& c) { return c.zero.offload_param.device == OffloadDevice::Nvme; });
  param.inert("buffer_count", "5", "staging buffers", kNoOffload).at_least(0);
  param.inert("buffer_size", "100000000", "elements of a staging buffer", kNoOffload).at_least(0);
  param.inert("max_in_cpu", "1000000000", "elements kept in memory with nvme", kNoOffload).at_least(0);
  param.inert("pin_memory", "true", "page-lock host memory", kNoOffload);
}

void add_offload_optimizer(KeyTable& table) {
  Section<OffloadConfig> optimizer(table, "zero_optimization.offload_optimizer",
                                   [](Config& c) -> OffloadConfig& { return c.zero.offload_optimizer; });
  const auto offloaded = [](const Config& c) { return c.zero.offload_optimizer.device != OffloadDevice::None; };
  const std::string when = "zero_optimization.offload_optimizer.device is not \"none\"";
  optimizer.key("device", &OffloadConfig::device, "where optimizer state is kept; only \"none\" in this version").nullable();
  optimizer.key("nvme_path", &OffloadConfig::nvme_path, "folder on the NVMe drive").nullable().active_when(when, offloaded);
  optimizer.key("ratio", &OffloadConfig::ratio, "share of the optimizer state that is offloaded")
      .between(0, 1)
      .active_when(when, offloaded);
  optimizer.inert("buffer_count", "4", "staging buffers", kNoOffload).at_least(0);
  optimizer.inert("pin_memory", "true", "page-lock host memory", kNoOffload);
  optimizer.inert("pipeline_read", "false", "overlap reading with the step", kNoOffload);
  optimizer.inert("pipeline_write", "false", "overlap writing with the step", kNoOffload);
  optimizer.inert("fast_init", "false", "skip the first transfer", kNoOffload);
  optimizer.unsupported("super_offload", "false", "SuperOffload");
  optimizer.inert("cpuadam_cores_perc", "0.8", "SuperOffload: share of the cores", kNoOffload).between(0, 1);
}

void add_zenflow(KeyTable& table) {
  SectionBase zenflow(table, "zero_optimization.zenflow");
  zenflow.on_when_given();
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
  SectionBase aio(table, "aio");
  aio.inert("block_size", "1048576", "bytes of one asynchronous read or write", kNoOffload).at_least(1);
  aio.inert("queue_depth", "8", "requests in flight", kNoOffload).at_least(1);
  aio.inert("intra_op_parallelism", "1", "threads of one request", kNoOffload).at_least(1);
  aio.inert("thread_count", "1", "older name of intra_op_parallelism", kNoOffload).at_least(1);
  aio.inert("single_submit", "false", "submit requests one by one", kNoOffload);
  aio.inert("overlap_events", "true", "overlap submission and completion", kNoOffload);
  aio.unsupported("use_gds", "false", "GPUDirect Storage");
}

}  // namespace trivet::config
