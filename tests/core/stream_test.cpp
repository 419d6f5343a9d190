#include "core/stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace trivet {
namespace {

[[noreturn]] void fail() { throw std::runtime_error("lost"); }

TEST(ThreadStream, AFailureIsThrownToWhoeverWaitsForItAndNothingRunsAfterIt) {
  const auto stream = make_thread_stream("test");
  const Event before = stream->record();
  stream->enqueue(fail);
  bool ran = false;
  stream->enqueue([&] { ran = true; });
  const Event after = stream->record();
  EXPECT_NO_THROW(before.synchronize());
  EXPECT_THROW(after.synchronize(), std::runtime_error);
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(ThreadStream, AFailureReachesStreamsThatWaitForIt) {
  const auto first = make_thread_stream("first"), second = make_thread_stream("second");
  first->enqueue(fail);
  second->wait(first->record());
  bool ran = false;
  second->enqueue([&] { ran = true; });
  EXPECT_THROW(second->synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
}

TEST(ThreadStream, ItsDestructorWaitsForWhatIsQueued) {
  int done = 0;
  {
    const auto stream = make_thread_stream("test");
    stream->enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });  // so the destructor starts first
    for (int i = 0; i < 10; ++i) stream->enqueue([&] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

class Waits final : public WaitObserver {
 public:
  Moment now() override { return ++moment_; }
  void waited(Moment from, Moment to) override { seen_.emplace_back(from, to); }
  const std::vector<std::pair<Moment, Moment>>& seen() const { return seen_; }

 private:
  Moment moment_ = 100;
  std::vector<std::pair<Moment, Moment>> seen_;
};

TEST(ThreadStream, AnObserverIsToldOfAWaitThatTookNoTime) {
  const auto stream = make_thread_stream("test");
  const Event event = stream->record();
  stream->synchronize();
  Waits waits;
  event.observe(waits);
  event.synchronize();
  ASSERT_EQ(waits.seen().size(), 1u);
  EXPECT_EQ(waits.seen()[0].first, 101);
  EXPECT_EQ(waits.seen()[0].second, 101);
}

}  // namespace
}  // namespace trivet
