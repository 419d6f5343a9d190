#include "engine/timeline/recorder.h"

#include <algorithm>
#include <utility>

namespace trivet::timeline {

using pipeline::Queue;
using pipeline::Recording;

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point time) {
  return std::chrono::duration<double, std::milli>(time.time_since_epoch()).count();
}

}  // namespace

class Recorder::ObservedStream final : public Stream {
 public:
  ObservedStream(Recorder& recorder, Queue queue, std::unique_ptr<Stream> inner)
      : recorder_(recorder), queue_(queue), inner_(std::move(inner)) {}

  void enqueue(std::function<void()> work) override {
    if (!recorder_.recording()) return inner_->enqueue(std::move(work));
    // Its turn comes behind the work before it; that the stream's thread must wake up is part of what it takes.
    inner_->enqueue([this, work = std::move(work), step = recorder_.step_, at = recorder_.at_, queued = Clock::now()] {
      const Time turn = std::max(queued, free_);
      work();
      free_ = Clock::now();
      recorder_.worked(queue_, step, at, turn, free_);
    });
  }
  Event record() override {
    const Event event = inner_->record();
    event.observe(recorder_.observers_[static_cast<size_t>(queue_)]);
    return event;
  }
  void wait(const Event& event) override { inner_->wait(event); }
  void synchronize() override { record().synchronize(); }

 private:
  Recorder& recorder_;
  Queue queue_;
  std::unique_ptr<Stream> inner_;
  Time free_;  // when the last recorded work ended; of the thread that does the work
};

Recorder::Recorder() {
  for (size_t queue = 0; queue < observers_.size(); ++queue) {
    observers_[queue].recorder = this;
    observers_[queue].queue = static_cast<Queue>(queue);
  }
}

std::unique_ptr<Stream> Recorder::observe(std::unique_ptr<Stream> stream, Queue queue) {
  return std::make_unique<ObservedStream>(*this, queue, std::move(stream));
}

std::vector<Recording> Recorder::take() {
  std::lock_guard lock(mutex_);
  ++step_;
  return std::exchange(steps_, {});
}

void Recorder::begin_step() {
  std::lock_guard lock(mutex_);
  recording_ = on_;
  ++step_;
  if (!recording_) return;
  program_thread_ = std::this_thread::get_id();
  at_ = Recording::kUpdate;
  steps_.emplace_back().begin = milliseconds(Clock::now());
}

void Recorder::end_program() {
  std::lock_guard lock(mutex_);
  if (recording_) steps_.back().program_end = milliseconds(Clock::now());
}

void Recorder::end_step() {
  std::lock_guard lock(mutex_);
  if (recording_) steps_.back().end = milliseconds(Clock::now());
  recording_ = false;
}

void Recorder::begin_instruction(size_t at) {
  at_ = static_cast<int>(at);
  instruction_begin_ = Clock::now();
}

void Recorder::end_instruction() {
  const Time end = Clock::now();
  std::lock_guard lock(mutex_);
  add({Recording::Kind::Step, Queue::Compute, at_, milliseconds(instruction_begin_), milliseconds(end)});
  at_ = Recording::kUpdate;
}

// What ends behind its step, as the gathers of new weights may, is left out.
void Recorder::worked(Queue queue, int64_t step, int at, Time from, Time to) {
  std::lock_guard lock(mutex_);
  if (!recording_ || step != step_) return;
  add({Recording::Kind::Work, queue, at, milliseconds(from), milliseconds(to)});
  if (std::this_thread::get_id() == program_thread_)
    add({Recording::Kind::Wait, queue, at, milliseconds(from), milliseconds(to)});
}

void Recorder::waited(Queue queue, Time from, Time to) {
  std::lock_guard lock(mutex_);
  if (!recording_ || std::this_thread::get_id() != program_thread_) return;
  add({Recording::Kind::Wait, queue, at_, milliseconds(from), milliseconds(to)});
}

}  // namespace trivet::timeline
