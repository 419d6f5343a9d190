// Saves while training continues: pieces are copied to a staging buffer, and a thread writes them.
//
//   start(): wait for the previous save | copy | return  ......  thread: write, meet, commit
//
// Offloaded pieces, which are in files or in the memory of a device's host, are not copied: start() then writes everything
// itself and returns when the save is done.
//
// At most one save is in flight. A save that fails is logged at once, and training continues; the next start() throws the
// `failure_limit`-th failure in a row, and finish() throws the failure of the last save. With a limit of 0 failures never end
// the run, and only the first in a row is logged, and those that report_next_failure() asks for. Weights that are not finite
// are never forgiven: whichever of the two functions is called next throws the NumericsError. All ranks must call start() and
// finish() the same number of times. The store, the group of the ranks (which nobody else may use) and the meter must outlive
// the saver. Destroying the saver waits for the thread; if a peer is lost, the error ends the wait.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "core/error.h"
#include "engine/checkpoint/checkpoint_store.h"

namespace trivet::checkpoint {

// Where pieces are copied to, and how. `apart`: pieces without a StagedTensor are in memory that only `copy` reaches, such as
// a device's.
struct Staging {
  Allocator& allocator = host_allocator();
  std::function<void(ConstTensorView from, TensorView to)> copy = copy_in_host_memory;
  bool apart = false;
  static void copy_in_host_memory(ConstTensorView from, TensorView to);
};

// The consequence of a failed write for the run: it goes on and saves again later, or it ends with this save.
enum class OnFailure : uint8_t { Continue, End };

class AsyncSaver {
 public:
  AsyncSaver(CheckpointStore& store, Participants ranks, MemoryMeter& meter, Log log = {}, Staging staging = {},
             int failure_limit = 3);
  ~AsyncSaver() = default;
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Returns when the pieces may change again. After OnFailure::End finish() must be called; the failure is then reported only
  // by what finish() throws.
  void start(const SaveRequest& request, OnFailure on_failure = OnFailure::Continue);
  // With a limit of 0: if the next save fails, it is reported although the one before it failed, too.
  void report_next_failure() { report_next_failure_ = true; }
  // Waits for the save in flight; throws what it threw.
  void finish();
  // Does the same, but a write that failed is not thrown.
  void wait();

  int64_t staging_bytes() const { return staging_.empty() ? 0 : staging_.view().bytes(); }
  // The size of the staging buffer that start() will allocate for these pieces.
  static int64_t staging_bytes_for(std::span<const Piece> pieces);

 private:
  void forgive_failed_write() const;
  void stage(const SaveRequest& request, bool copies);
  void write();
  void report(const CheckpointError& error) const;
  std::string what_follows() const;

  CheckpointStore& store_;
  Participants ranks_;
  MemoryMeter& meter_;
  Log log_;
  Staging how_;
  int failure_limit_;
  int failures_in_a_row_ = 0;
  bool report_next_failure_ = false;            // asked for, from the save that start() begins next
  bool reports_failure_ = false;                // the same for the save in flight
  OnFailure on_failure_ = OnFailure::Continue;  // for the save in flight
  std::exception_ptr failure_;                  // from the last save

  Buffer staging_;
  std::vector<Piece> pieces_;  // views of staging_, or of the data itself
  SaveRequest request_;
  std::jthread thread_;  // last, because it uses the members above
};

}  // namespace trivet::checkpoint
