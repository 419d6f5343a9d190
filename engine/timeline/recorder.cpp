#include "engine/timeline/recorder.h"

#include <utility>

namespace trivet::timeline {

using pipeline::Queue;
using pipeline::Recording;

class Recorder::ObservedStream final : public Stream {
 public:
  ObservedStream(Recorder& recorder, Queue queue, bool overlaps, std::unique_ptr<Stream> inner)
      : recorder_(recorder), queue_(queue), overlaps_(overlaps), inner_(std::move(inner)) {}

  void enqueue(std::function<void()> work) override {
    if (!recorder_.recording()) return inner_->enqueue(std::move(work));
    // Its turn comes after the work before it.
    StreamClock& clock = *recorder_.clock_;
    const Work recorded{queue_, recorder_.at_, recorder_.step_, overlaps_};
    inner_->enqueue([this, &clock, work = std::move(work), recorded, queued = clock.now()] {
      const Moment turn = clock.turn(queued, free_);
      work();
      free_ = clock.now();
      recorder_.worked(recorded, turn, free_);
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
  bool overlaps_;
  std::unique_ptr<Stream> inner_;
  Moment free_ = 0;  // when the last recorded work ended; used only by the thread that does the work
};

Recorder::Recorder(std::unique_ptr<StreamClock> clock) : clock_(std::move(clock)) {
  for (size_t queue = 0; queue < observers_.size(); ++queue) {
    observers_[queue].recorder = this;
    observers_[queue].queue = static_cast<Queue>(queue);
  }
}

std::unique_ptr<Stream> Recorder::observe(std::unique_ptr<Stream> stream, Queue queue, bool overlaps) {
  return std::make_unique<ObservedStream>(*this, queue, overlaps, std::move(stream));
}

std::vector<Recording> Recorder::take() {
  std::lock_guard lock(mutex_);
  ++step_;
  std::vector<Recording> recordings;
  for (const Step& step : std::exchange(steps_, {})) recordings.push_back(timed(step));
  clock_->forget();
  return recordings;
}

// Leaves out what ends after its step, as the gathers of new weights may.
Recording Recorder::timed(const Step& step) {
  Recording recording{.begin = clock_->milliseconds(step.begin),
                      .program_end = clock_->milliseconds(step.program_end),
                      .end = clock_->milliseconds(step.end),
                      .spans = {}};
  for (const Span& span : step.spans) {
    const double end = clock_->milliseconds(span.end);
    if (end <= recording.end)
      recording.spans.push_back({span.kind, span.queue, span.at, clock_->milliseconds(span.start), end});
  }
  return recording;
}

void Recorder::begin_step() {
  std::lock_guard lock(mutex_);
  recording_ = on_;
  ++step_;
  if (!recording_) return;
  program_thread_ = std::this_thread::get_id();
  at_ = Recording::kUpdate;
  steps_.emplace_back().begin = clock_->now();
}

void Recorder::end_program() {
  std::lock_guard lock(mutex_);
  if (recording_) steps_.back().program_end = clock_->now();
}

void Recorder::end_step() {
  std::lock_guard lock(mutex_);
  if (recording_) steps_.back().end = clock_->now();
  recording_ = false;
}

void Recorder::begin_instruction(size_t at) {
  at_ = static_cast<int>(at);
  instruction_begin_ = clock_->now();
}

void Recorder::end_instruction() {
  const Moment end = clock_->now();
  std::lock_guard lock(mutex_);
  steps_.back().spans.push_back({Recording::Kind::Step, Queue::Compute, at_, instruction_begin_, end});
  at_ = Recording::kUpdate;
}

void Recorder::worked(const Work& work, Moment from, Moment to) {
  std::lock_guard lock(mutex_);
  if (!recording_ || work.step != step_) return;
  steps_.back().spans.push_back({Recording::Kind::Work, work.queue, work.at, from, to});
  if (!work.overlaps) steps_.back().spans.push_back({Recording::Kind::Wait, work.queue, work.at, from, to});
}

StreamClock::Moment Recorder::wait_moment() {
  std::lock_guard lock(mutex_);
  return records_this_thread() ? clock_->now() : 0;
}

void Recorder::waited(Queue queue, Moment from, Moment to) {
  std::lock_guard lock(mutex_);
  if (!records_this_thread()) return;
  steps_.back().spans.push_back({Recording::Kind::Wait, queue, at_, from, to});
}

}  // namespace trivet::timeline
