// Threads that share a stream of work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trivet::data {

// Owns its threads. add() and finish() are for one thread.
class WorkThreads {
 public:
  explicit WorkThreads(int threads);
  ~WorkThreads();  // drops work that has not begun
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;

  // Waits until a thread has room for it. Work added before an error is still done; later work is dropped.
  void add(std::function<void()> work);
  bool has_failed() const;
  // Waits until all is done; then throws the error of the earliest work that failed.
  void finish();

 private:
  struct Numbered {
    int64_t number;
    std::function<void()> work;
  };
  void run();
  void stop();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Numbered> waiting_;
  size_t most_waiting_;
  int64_t added_ = 0, running_ = 0;
  bool stops_ = false;
  int64_t failed_number_ = 0;  // number of the work that threw error_
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace trivet::data
