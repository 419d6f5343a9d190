// Looks after the communicators of a rank while its program computes, on a thread of its own.
//
// Kernels of NCCL that wait for a peer wait for ever, and so does whoever waits for their stream. The watch sees
//   * peers: every `heartbeat` the watches of all ranks meet on the host's group, which knows of ranks that have died, left or
//     stopped (comm/process_group.h);
//   * what NCCL found out by itself (ncclCommGetAsyncError);
//   * operations that are on a stream and do not end within the deadline.
// The first of these is kept, all communicators are aborted, so that the device comes to its end, and check() throws it: at the
// group's next call, and wherever the program has waited for the device.
//
// A step may be captured (cudaStreamCaptureModeThreadLocal or Relaxed: this thread goes on asking for events).
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

#include "comm/nccl/seat.h"
#include "comm/nccl/under_way.h"
#include "comm/process_group.h"

namespace trivet::comm {

class Communicator;

struct WatchOptions {
  std::chrono::milliseconds heartbeat{100};
  std::chrono::milliseconds operation_deadline{600000};
};

class NcclWatch {
 public:
  // `peers`: a group of all ranks that nobody else uses. Runs for the current device.
  NcclWatch(std::unique_ptr<ProcessGroup> peers, const WatchOptions& options);
  // Does not wait for work of other ranks, but for their watches to meet or leave once more.
  ~NcclWatch();

  // Throws what was found out; a lost peer as an error of `during`.
  void check(const NcclSeat& seat, const std::string& during);
  // The same where nothing in particular was being done: after the host has waited for the device.
  void check();
  // Collective: all ranks stop watching. Throws what was found out.
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
  std::mutex members_mutex_;  // before failure_mutex_
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
