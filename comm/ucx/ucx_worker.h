// UCX's objects of one rank: the context, the worker, and a descriptor that becomes readable when the worker has something to
// do. Not thread-safe.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <utility>

#include "comm/network_interface.h"
#include "core/descriptor.h"

namespace trivet::comm {

class UcxWorker {
 public:
  // Throws CommError (Rendezvous).
  explicit UcxWorker(const NetworkInterface& interface);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  // A copy of the descriptor, which stays open when the worker is destroyed.
  Descriptor take_events() { return std::move(events_); }
  const std::string& address() const { return address_; }

  // Does all work that there is now. It calls the callbacks of messages and endpoints.
  void progress();
  // From now on, the descriptor becomes readable when there is work. False: there is work already.
  bool arm();
  // Makes the descriptor readable. May be called while another thread polls it.
  void wake();

 private:
  void open_context(const NetworkInterface& interface);
  void open_worker();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  Descriptor events_;
  std::string address_;
};

}  // namespace trivet::comm
