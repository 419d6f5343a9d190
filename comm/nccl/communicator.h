// One NCCL communicator, made without blocking, so that a rank that never comes costs a deadline and not the program.
//
//   making --all ranks are there--> ready --close()--> gone
//                                     \--abort(), destructor--> gone: kernels that wait for a peer return
//
// Calls come from one thread at a time; abort() and failure() may come from any other meanwhile (the watch's).
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "comm/nccl/error.h"
#include "comm/nccl/seat.h"

namespace trivet::comm {

class NcclWatch;

// For all ranks to come: when it is made, and to what it then does (the first use of a connection waits for the peer).
struct CommunicatorDeadlines {
  std::chrono::milliseconds join, operation;
};

class Communicator {
 public:
  // Collective over the ranks of `seat`, which all have the same id. The watch must outlive it.
  // Throws CommError Rendezvous at the deadline or when NCCL fails.
  Communicator(const NcclSeat& seat, const ncclUniqueId& id, NcclWatch& watch, const CommunicatorDeadlines& deadlines);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const NcclSeat& seat() const { return seat_; }

  // What `work` calls is one group of NCCL. Returns when all of it is on its streams. `during` names it in errors.
  using Work = std::function<ncclResult_t(ncclComm_t)>;
  void run(const std::string& during, const Work& work);

  // Collective: waits until all ranks' operations have ended, then releases it.
  void close();
  void abort() noexcept;
  // What NCCL has found out meanwhile; nothing while it is well.
  std::exception_ptr failure();

 private:
  ncclResult_t state(const std::string& during);
  // Until NCCL has done what was asked of it.
  void settle(const std::string& during, ncclResult_t result, ExitCode code, std::chrono::milliseconds deadline);
  [[noreturn]] void fail(const std::string& during, ncclResult_t result, ExitCode code);

  const NcclSeat seat_;
  NcclWatch& watch_;
  const CommunicatorDeadlines deadlines_;
  std::mutex mutex_;  // of the handle: NCCL's calls on one communicator come one at a time
  ncclComm_t comm_ = nullptr;
};

}  // namespace trivet::comm
