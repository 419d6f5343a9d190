// One NCCL communicator, created in non-blocking mode, so that a rank that never arrives leads to an error at the deadline
// instead of a hang.
//
//   making --all ranks are there--> ready --close()--> gone
//                                     \--abort(), destructor--> gone: kernels that wait for a peer return
//
// One thread at a time may use it; abort() and failure() may be called from another thread (the watch's) meanwhile.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "comm/nccl/error.h"
#include "comm/rank_in_group.h"

namespace trivet::comm {

class NcclWatch;

// The longest waits for all ranks: when the communicator is created, and in each operation (the first use of a
// connection waits for the peer).
struct CommunicatorDeadlines {
  std::chrono::milliseconds join, operation;
};

class Communicator {
 public:
  // Collective over the ranks of the group, which must all pass the same id. The watch must outlive the communicator. Throws
  // CommError Rendezvous at the deadline or when NCCL fails.
  Communicator(const RankInGroup& self, const ncclUniqueId& id, NcclWatch& watch, const CommunicatorDeadlines& deadlines);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const RankInGroup& self() const { return self_; }

  // Runs the calls of `work` as one NCCL group. Returns when all of them are on their streams. `during` names the work in
  // errors.
  using Work = std::function<ncclResult_t(ncclComm_t)>;
  void run(const std::string& during, const Work& work);

  // Collective: waits until all ranks' operations have ended, then releases the communicator.
  void close();
  void abort() noexcept;
  // An error that NCCL has found asynchronously; null if there is none.
  std::exception_ptr failure();

 private:
  ncclResult_t state(const std::string& during);
  // Waits until NCCL has finished the last call.
  void settle(const std::string& during, ncclResult_t result, ExitCode code, std::chrono::milliseconds deadline);
  [[noreturn]] void fail(const std::string& during, ncclResult_t result, ExitCode code);

  const RankInGroup self_;
  NcclWatch& watch_;
  const CommunicatorDeadlines deadlines_;
  std::mutex mutex_;  // guards the handle: NCCL allows one call at a time on a communicator
  ncclComm_t comm_ = nullptr;
};

}  // namespace trivet::comm
