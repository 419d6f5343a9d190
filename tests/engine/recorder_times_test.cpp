// What a recorder keeps of each step, with a clock that the test moves. recorder_test.cpp tests the order on real pipelines.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/timeline/recorder.h"

namespace trivet::timeline {
namespace {

using pipeline::Queue;
using pipeline::Recording;
using Kind = Recording::Kind;

struct HandClock final : StreamClock {
  explicit HandClock(int64_t& time) : time_(time) {}
  Moment now() override { return time_; }
  Moment turn(Moment queued, Moment free) override { return std::max(queued, free); }
  double milliseconds(Moment moment) override { return static_cast<double>(moment); }
  int64_t& time_;
};

// Keeps its work until the test runs it, as a stream of another thread may.
struct LateStream final : Stream {
  explicit LateStream(std::vector<std::function<void()>>& work) : work_(work) {}
  void enqueue(std::function<void()> work) override { work_.push_back(std::move(work)); }
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void synchronize() override {}
  std::vector<std::function<void()>>& work_;
};

class RecorderTimes : public testing::Test {
 protected:
  void begin_step(int64_t time) { time_ = time, recorder_.begin_step(); }
  void end_step(int64_t time) { time_ = time, recorder_.end_program(), recorder_.end_step(); }
  void do_late_work(int64_t end) {
    for (const auto& work : late_) time_ = end, work();
    late_.clear();
  }

  int64_t time_ = 0;
  std::vector<std::function<void()>> late_;
  Recorder recorder_{std::make_unique<HandClock>(time_)};
  std::unique_ptr<Stream> stream_ = recorder_.observe(std::make_unique<LateStream>(late_), Queue::Gather, true);
};

TEST_F(RecorderTimes, WorkLastsFromItsTurnToItsEndAndBelongsToItsInstruction) {
  recorder_.record(true);
  begin_step(100);
  {
    const RecordedInstruction instruction(&recorder_, 3);
    time_ = 110;
    stream_->enqueue([] {});
    time_ = 120;
  }
  do_late_work(150);
  end_step(200);
  const std::vector<Recording> steps = recorder_.take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].begin, 100);
  EXPECT_EQ(steps[0].end, 200);
  EXPECT_EQ(steps[0].spans, (std::vector<Recording::Span>{{Kind::Step, Queue::Compute, 3, 100, 120},
                                                          {Kind::Work, Queue::Gather, 3, 110, 150}}));
}

TEST_F(RecorderTimes, WorkThatEndsWithTheStepIsKept) {
  recorder_.record(true);
  begin_step(100);
  stream_->enqueue([] {});
  do_late_work(200);
  end_step(200);
  EXPECT_EQ(recorder_.take()[0].spans,
            (std::vector<Recording::Span>{{Kind::Work, Queue::Gather, Recording::kUpdate, 100, 200}}));
}

TEST_F(RecorderTimes, WorkThatEndsInTheNextStepBelongsToNoStep) {
  recorder_.record(true);
  begin_step(100);
  stream_->enqueue([] {});
  end_step(200);
  begin_step(200);
  do_late_work(250);
  end_step(300);
  const std::vector<Recording> steps = recorder_.take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[0].spans.empty());
  EXPECT_TRUE(steps[1].spans.empty());
}

TEST_F(RecorderTimes, NothingIsRecordedUnlessItIsAskedFor) {
  begin_step(100);
  stream_->enqueue([] {});
  do_late_work(150);
  end_step(200);
  EXPECT_TRUE(recorder_.take().empty());
}

}  // namespace
}  // namespace trivet::timeline
