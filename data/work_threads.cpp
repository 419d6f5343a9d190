#include "data/work_threads.h"

#include "core/start_threads.h"

namespace trivet::data {

WorkThreads::WorkThreads(int threads) : most_waiting_(static_cast<size_t>(threads)) {
  threads_ = start_threads(
      threads, [this](int) { run(); }, [this](int) { stop(); });
}

WorkThreads::~WorkThreads() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void WorkThreads::stop() {
  const std::scoped_lock lock(mutex_);
  stops_ = true;
  waiting_.clear();
  changed_.notify_all();
}

void WorkThreads::add(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < most_waiting_ || error_; });
  if (error_) return;
  waiting_.push_back({added_++, std::move(work)});
  changed_.notify_all();
}

bool WorkThreads::has_failed() const {
  const std::scoped_lock lock(mutex_);
  return error_ != nullptr;
}

void WorkThreads::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && running_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void WorkThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    const Numbered next = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr error;
    try {
      next.work();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --running_;
    if (error && (!error_ || next.number < failed_number_)) {
      error_ = error;
      failed_number_ = next.number;
    }
    changed_.notify_all();
  }
}

}  // namespace trivet::data
