// Saving beside training: pieces are copied to a staging buffer, a thread writes them.
//
//   start(): wait for the save before | copy | return  ......  thread: write, meet, commit
//
// Where pieces are in files, or in host memory beside a device (offload), they are not copied: start() writes all itself and
// returns when the save is done.
//
// One save is in flight. A save that fails is logged at once and training goes on; the `failure_limit`-th in a row is thrown by
// the next start(), and the failure of the last save by finish(). Weights that are not finite are never forgiven: whichever of
// the two comes next throws the NumericsError. All ranks call start() and finish() equally often. The store, the ranks' own
// group (nobody else's) and the meter must outlive the saver. Destroying it waits for the thread; a lost peer ends that by its
// error.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "engine/checkpoint/store.h"

namespace trivet::checkpoint {

// Where pieces are copied to, and how. `apart`: they are in memory that only this copy reaches, unless they have a place.
struct Staging {
  Allocator& allocator = host_allocator();
  std::function<void(ConstTensorView from, TensorView to)> copy = copy_in_host_memory;
  bool apart = false;
  static void copy_in_host_memory(ConstTensorView from, TensorView to);
};

// What a failed write means to the run: another save will be tried, or this was the one that mattered.
enum class OnFailure : uint8_t { GoOn, End };

class AsyncSaver {
 public:
  AsyncSaver(Store& store, Participants ranks, MemoryMeter& meter, Log log = {}, Staging staging = {}, int failure_limit = 3);
  ~AsyncSaver() = default;
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Returns when the pieces may change again. After OnFailure::End finish() must be called; the failure is then said only by
  // what that throws.
  void start(const SaveRequest& request, OnFailure on_failure = OnFailure::GoOn);
  // Waits for the save in flight; throws what it threw.
  void finish();

  int64_t staging_bytes() const { return staging_.empty() ? 0 : staging_.view().bytes(); }
  // What start() will take for these pieces, once.
  static int64_t staging_bytes_for(std::span<const Piece> pieces);

 private:
  void wait();
  void forgive_failed_write() const;
  void stage(const SaveRequest& request, bool copies);
  void write();
  std::string what_follows() const;

  Store& store_;
  Participants ranks_;
  MemoryMeter& meter_;
  Log log_;
  Staging how_;
  int failure_limit_;
  int failures_in_a_row_ = 0;
  OnFailure on_failure_ = OnFailure::GoOn;  // of the save in flight
  std::exception_ptr failure_;              // of the last save

  Buffer staging_;
  std::vector<Piece> pieces_;  // views of staging_, or where else the data is
  SaveRequest request_;
  std::jthread thread_;  // last: it uses what is above
};

}  // namespace trivet::checkpoint
