// A job of threads that has joined over real connections, each rank with its own JobState and Liveness.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/liveness.h"
#include "tests/comm/meeting.h"

namespace trivet::comm {

class Job {
 public:
  using Edit = std::function<void(RendezvousOptions&)>;

  explicit Job(int size, std::chrono::milliseconds silence = std::chrono::milliseconds(60000))
      : Job(size, [silence](RendezvousOptions& options) { options.silence = silence; }) {}
  // `edit` changes the options of each rank before it joins.
  Job(int size, const Edit& edit) : states_(size), ranks_(states_.size()) {
    Meeting meeting(size);
    std::vector<std::function<void()>> bodies;
    for (int rank = 0; rank < size; ++rank) {
      bodies.push_back([this, &meeting, rank, &edit] {
        states_[rank] = std::make_shared<JobState>();
        RendezvousOptions options = meeting.options(rank);
        options.beat = std::chrono::milliseconds(20);
        options.silence = std::chrono::milliseconds(60000);
        edit(options);
        ranks_[rank] = std::make_unique<Liveness>(rendezvous(std::move(options)), rank, LivenessOptions{}, states_[rank]);
      });
    }
    for (const Outcome& outcome : meeting.run(bodies)) EXPECT_EQ(outcome.error, "");
  }
  Liveness& operator[](int rank) { return *ranks_[rank]; }
  JobState& state(int rank) { return *states_[rank]; }
  void kill(int rank) { ranks_[rank].reset(); }
  bool lives(int rank) const { return ranks_[rank] != nullptr; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Runs `body` on one thread for each rank that has not been killed.
  std::vector<Outcome> each(const std::function<void(int)>& body) {
    std::vector<Outcome> outcomes(ranks_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      if (ranks_[rank]) {
        threads.emplace_back([&, rank] { outcomes[rank] = outcome_of([&] { body(rank); }); });
      }
    }
    for (auto& thread : threads) thread.join();
    return outcomes;
  }

  void expect_accused(int culprit, const std::string& cause, const std::vector<int>& by) {
    for (int rank : by) {
      ASSERT_TRUE(state(rank).wait_for(kUntilItHappens)) << "rank " << rank << " noticed nothing";
      EXPECT_EQ(state(rank).accusation()->world_rank, culprit) << "rank " << rank;
      EXPECT_THAT(state(rank).accusation()->cause, ::testing::HasSubstr(cause));
      EXPECT_THAT(state(rank).accusation()->host, ::testing::EndsWith(", pid " + std::to_string(100 + culprit)));
    }
  }

 private:
  std::vector<std::shared_ptr<JobState>> states_;
  std::vector<std::unique_ptr<Liveness>> ranks_;
};

}  // namespace trivet::comm
