#include "comm/ucx/ucx_worker.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdlib>

#include "comm/transport/transport_module.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

void check(ucs_status_t status, const std::string& what) {
  if (status != UCS_OK)
    throw CommError(ExitCode::Rendezvous, fmt::format("comm: UCX cannot {}: {}", what, ::ucs_status_string(status)));
}

class Config {
 public:
  Config() { check(::ucp_config_read(nullptr, nullptr, &config_), "read its configuration"); }
  ~Config() { ::ucp_config_release(config_); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  // Unless the variable UCX_<name> is set.
  void prefer(const char* name, const std::string& value) {
    if (std::getenv(fmt::format("UCX_{}", name).c_str())) return;
    check(::ucp_config_modify(config_, name, value.c_str()), fmt::format("set {} to {}", name, value));
  }
  const ucp_config_t* get() const { return config_; }

 private:
  ucp_config_t* config_ = nullptr;
};

}  // namespace

UcxWorker::UcxWorker(const NetworkInterface& interface) {
  try {
    open_context(interface);
    open_worker();
  } catch (...) {
    if (worker_) ::ucp_worker_destroy(worker_);
    if (context_) ::ucp_cleanup(context_);
    throw;
  }
}

UcxWorker::~UcxWorker() {
  ::ucp_worker_destroy(worker_);
  ::ucp_cleanup(context_);
}

void UcxWorker::open_context(const NetworkInterface& interface) {
  Config config;
  config.prefer("TLS", "tcp,self");
  config.prefer("NET_DEVICES", interface.name);
  if (!std::getenv("UCX_TLS")) config.prefer("RNDV_THRESH", "inf");
  if (interface.ipv6) config.prefer("TCP_AF_PRIO", "inet6");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  check(::ucp_init(&params, config.get(), &context_), "start");
}

void UcxWorker::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(::ucp_worker_create(context_, &params, &worker_), "use the network");

  int events = -1;
  check(::ucp_worker_get_efd(worker_, &events), "wait for messages");
  events_ = Descriptor(::fcntl(events, F_DUPFD_CLOEXEC, 0));
  if (!events_)
    throw CommError(ExitCode::Rendezvous, "comm: this process may not open more files; raise the limit (ulimit -n)");

  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(::ucp_worker_get_address(worker_, &address, &bytes), "find its address");
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ::ucp_worker_release_address(worker_, address);
  if (bytes > UnconnectedTransport::kLongestAddress)
    throw CommError(ExitCode::Rendezvous, fmt::format("comm: UCX's address has {} bytes, at most {} are accepted; let it use "
                                                      "fewer networks (UCX_TLS, UCX_NET_DEVICES)",
                                                      bytes, UnconnectedTransport::kLongestAddress));
}

void UcxWorker::progress() {
  while (::ucp_worker_progress(worker_) != 0) {
  }
}

bool UcxWorker::arm() { return ::ucp_worker_arm(worker_) == UCS_OK; }

void UcxWorker::wake() { ::ucp_worker_signal(worker_); }

}  // namespace trivet::comm
