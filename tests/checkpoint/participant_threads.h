// Ranks are threads that exchange texts through memory, for tests of what ranks do together with files.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/participants.h"
#include "core/error.h"

namespace trivet::support {

// A rank that is lost ends the waits of the others with CommError.
class Meeting {
 public:
  explicit Meeting(int size) : texts_(size) {}

  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    texts_[rank] = mine;
    const int64_t round = round_;
    if (++arrived_ == static_cast<int>(texts_.size())) {
      arrived_ = 0;
      ++round_;
      result_ = texts_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || failure_; });
    if (round_ == round) throw CommError(ExitCode::PeerLost, "a rank of the meeting is lost");
    return result_;
  }

  void lose(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }
  std::exception_ptr failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0;
  int64_t round_ = 0;
  std::exception_ptr failure_;
};

// Runs `body` once per rank. The first exception is rethrown when all ranks have ended.
inline void run_ranks(int size, const std::function<void(const comm::Participants& ranks)>& body) {
  Meeting meeting(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&meeting, &body, rank, size] {
      try {
        body({rank, size, [&meeting, rank](const std::string& mine) { return meeting.gather(rank, mine); }});
      } catch (...) {
        meeting.lose(std::current_exception());
      }
    });
  threads.clear();  // joins
  if (meeting.failure()) std::rethrow_exception(meeting.failure());
}

}  // namespace trivet::support
