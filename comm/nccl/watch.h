// Watches the communicators of a rank on its own thread while the program computes.
//
// An NCCL kernel that waits for a peer waits forever, and so does everything that waits for its stream. The watch detects
//   * lost peers: every `heartbeat`, the watches of all ranks meet on the host group, which knows of ranks that have died, left
//     or stopped (comm/process_group.h);
//   * errors that NCCL found by itself (ncclCommGetAsyncError);
//   * operations that are on a stream and do not end within the deadline.
// The watch keeps the first failure and aborts all communicators, so that the device's work ends. check() then throws the
// failure: at the group's next call, and wherever the program has waited for the device.
//
// A step may be captured only in cudaStreamCaptureModeThreadLocal or Relaxed, because this thread continues to query events.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "comm/nccl/under_way.h"
#include "comm/process_group.h"
#include "comm/rank_in_group.h"

namespace trivet::comm {

class Communicator;

struct WatchOptions {
  std::chrono::milliseconds heartbeat{100};
  std::chrono::milliseconds operation_deadline{600000};
};

class NcclWatch {
 public:
  // `peers` is a group of all ranks that nobody else uses. The watch is for the current device.
  NcclWatch(std::unique_ptr<ProcessGroup> peers, const WatchOptions& options);
  // Does not wait for the work of other ranks, only for their watches to meet once more or to leave.
  ~NcclWatch();

  // Throws the failure, if there is one; a lost peer is reported as an error of `during`.
  void check(const RankInGroup& self, const std::string& during);
  // Does the same outside of an operation: after the host has waited for the device.
  void check();
  // Collective: all ranks stop watching. Throws the failure, if there is one.
  void close();

  void add(Communicator& communicator);
  void remove(Communicator& communicator);
  void add(UnderWay& operations);
  void remove(UnderWay& operations);

 private:
  void run(int device);
  void look();
  bool meet();
  void give_up(std::exception_ptr reason, bool of_peers);
  void stop();

  const std::unique_ptr<ProcessGroup> peers_;
  const WatchOptions options_;
  std::mutex members_mutex_;  // locked before failure_mutex_
  std::set<Communicator*> communicators_;
  std::set<UnderWay*> operations_;
  std::mutex failure_mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  bool failure_of_peers_ = false;
  bool closing_ = false, stopping_ = false;
  std::thread thread_;  // last: starts when all else is ready
};

}  // namespace trivet::comm
