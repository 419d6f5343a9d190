// Times a rank's steps, instruction by instruction (pipeline/recording.h says what is recorded).
//
//   auto gather = recorder.observe(make_thread_stream("gather"), pipeline::Queue::Gather);   // its work, and waits for it
//   recorder.record(true);          // from the next step on
//   engine.train_batch(...);        // the worker and the executor report where they are
//   recorder.take();
//
// While it does not record, a stream costs one branch per operation and the executor has no pointer to it. Times are those of
// CLOCK_MONOTONIC, which all threads and processes of a host share; those of ranks on different hosts are not aligned. Work on
// a device is timed by the device (core/stream_clock.h). begin_step() and the functions after it are called on the thread that
// runs the program; streams report from their own threads. The recorder must outlive its streams and their events.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/stream.h"
#include "core/stream_clock.h"
#include "pipeline/recording.h"

namespace trivet::timeline {

class Recorder {
 public:
  explicit Recorder(std::unique_ptr<StreamClock> clock);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Operations of a stream that does not overlap keep the program waiting, so they are recorded both as work and as a wait.
  std::unique_ptr<Stream> observe(std::unique_ptr<Stream> stream, pipeline::Queue queue, bool overlaps);

  void record(bool on) { on_ = on; }
  // Returns the steps recorded since the last call. Waits until all their work is done.
  std::vector<pipeline::Recording> take();

  bool recording() const { return recording_; }  // the current step
  void begin_step();
  void end_program();
  void end_step();
  void begin_instruction(size_t at);
  void end_instruction();

 private:
  using Moment = StreamClock::Moment;
  class ObservedStream;
  struct QueueObserver final : WaitObserver {
    Moment now() override { return recorder->wait_moment(); }
    void waited(Moment from, Moment to) override { recorder->waited(queue, from, to); }
    Recorder* recorder = nullptr;
    pipeline::Queue queue = pipeline::Queue::Compute;
  };

  // A span of a Recording, before its times are known.
  struct Span {
    pipeline::Recording::Kind kind;
    pipeline::Queue queue;
    int at;
    Moment start, end;
  };
  struct Step {
    Moment begin = 0, program_end = 0, end = 0;
    std::vector<Span> spans;
  };

  struct Work {
    pipeline::Queue queue;
    int at;
    int64_t step;
    bool overlaps;
  };
  void worked(const Work& work, Moment from, Moment to);
  bool records_this_thread() const { return recording_ && std::this_thread::get_id() == program_thread_; }
  Moment wait_moment();
  void waited(pipeline::Queue queue, Moment from, Moment to);
  pipeline::Recording timed(const Step& step);

  const std::unique_ptr<StreamClock> clock_;
  std::array<QueueObserver, pipeline::kQueues> observers_;  // [queue]
  bool on_ = false;
  int at_ = pipeline::Recording::kUpdate;  // index of the current instruction
  Moment instruction_begin_ = 0;

  // Written by the program's thread under the mutex, and read by other threads under it.
  std::mutex mutex_;
  bool recording_ = false;
  int64_t step_ = 0;  // distinguishes late work of a step from the next step's
  std::thread::id program_thread_;
  std::vector<Step> steps_;
};

// Records one instruction; does nothing without a recorder.
class RecordedInstruction {
 public:
  RecordedInstruction(Recorder* recorder, size_t at) : recorder_(recorder) {
    if (recorder_) recorder_->begin_instruction(at);
  }
  ~RecordedInstruction() {
    if (recorder_) recorder_->end_instruction();
  }
  RecordedInstruction(const RecordedInstruction&) = delete;
  RecordedInstruction& operator=(const RecordedInstruction&) = delete;

 private:
  Recorder* recorder_;
};

}  // namespace trivet::timeline
