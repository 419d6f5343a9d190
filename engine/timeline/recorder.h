// Times a rank's steps, instruction by instruction (pipeline/recording.h says what is recorded).
//
//   auto gather = recorder.observe(make_thread_stream("gather"), pipeline::Queue::Gather);   // work on it and waits for it
//   recorder.record(true);          // from the next step on
//   engine.train_batch(...);        // the worker and the executor tell it where they are
//   recorder.take();
//
// When it does not record, a stream costs one branch an operation and the executor has no pointer to it. The clock is
// CLOCK_MONOTONIC, which all threads and processes of a host share; ranks of this version are on one host. begin_step and what
// follows it are called on the thread that runs the program; streams report from their own threads. Must outlive its streams
// and their events.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/stream.h"
#include "pipeline/recording.h"

namespace trivet::timeline {

class Recorder {
 public:
  Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Operations of an inline stream keep the program's thread waiting: they are recorded as work and as wait.
  std::unique_ptr<Stream> observe(std::unique_ptr<Stream> stream, pipeline::Queue queue);

  void record(bool on) { on_ = on; }
  // The steps recorded since the last call.
  std::vector<pipeline::Recording> take();

  bool recording() const { return recording_; }  // a step
  void begin_step();
  void end_program();
  void end_step();
  void begin_instruction(size_t at);
  void end_instruction();

 private:
  using Time = WaitObserver::Time;
  class ObservedStream;
  struct QueueObserver final : WaitObserver {
    void waited(Time from, Time to) override { recorder->waited(queue, from, to); }
    Recorder* recorder = nullptr;
    pipeline::Queue queue = pipeline::Queue::Compute;
  };

  void worked(pipeline::Queue queue, int64_t step, int at, Time from, Time to);
  void waited(pipeline::Queue queue, Time from, Time to);
  void add(const pipeline::Recording::Span& span) { steps_.back().spans.push_back(span); }

  std::array<QueueObserver, 6> observers_;  // [queue]
  bool on_ = false;
  int at_ = pipeline::Recording::kUpdate;  // of the instruction that runs
  Time instruction_begin_;

  // Written by the program's thread under the mutex, read by others under it.
  std::mutex mutex_;
  bool recording_ = false;
  int64_t step_ = 0;  // tells a step's late work from the next one's
  std::thread::id program_thread_;
  std::vector<pipeline::Recording> steps_;
};

// One instruction; does nothing without a recorder.
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
