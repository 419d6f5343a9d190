#include "core/stream.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace trivet {

namespace {

// An event for work done by a thread of this process.
class ThreadEvent final : public Event::State {
 public:
  void synchronize() override {
    std::unique_lock lock(mutex_);
    wait(lock);
    if (error_) std::rethrow_exception(error_);
  }
  void observe(WaitObserver& observer) override {
    std::lock_guard lock(mutex_);
    observer_ = &observer;
  }
  void finish(std::exception_ptr failure) {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(failure);
    }
    changed_.notify_all();
  }

 private:
  void wait(std::unique_lock<std::mutex>& lock) {
    if (!observer_) return changed_.wait(lock, [&] { return done_; });
    const auto from = observer_->now();
    const bool waits = !done_;
    changed_.wait(lock, [&] { return done_; });
    observer_->waited(from, waits ? observer_->now() : from);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
  WaitObserver* observer_ = nullptr;
};

class InlineStream final : public Stream {
 public:
  void enqueue(std::function<void()> work) override { work(); }
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void synchronize() override {}
};

// After a failure the stream runs nothing more: every later event carries the first error.
class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(const std::string& name) : thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
  }
  ~ThreadStream() override {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void enqueue(std::function<void()> work) override {
    push([this, work = std::move(work)] {
      if (error_) return;
      try {
        work();
      } catch (...) {
        error_ = std::current_exception();
      }
    });
  }
  Event record() override {
    auto state = std::make_shared<ThreadEvent>();
    push([this, state] { state->finish(error_); });
    return Event(state);
  }
  void wait(const Event& event) override {
    enqueue([event] { event.synchronize(); });
  }
  void synchronize() override { record().synchronize(); }

 private:
  void push(std::function<void()> item) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
    }
    wake_.notify_one();
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      item();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool closing_ = false;
  std::exception_ptr error_;  // touched by the stream's thread only
  std::thread thread_;        // last: starts when all else is ready
};

}  // namespace

std::unique_ptr<Stream> make_inline_stream() { return std::make_unique<InlineStream>(); }
std::unique_ptr<Stream> make_thread_stream(const std::string& name) { return std::make_unique<ThreadStream>(name); }

}  // namespace trivet
