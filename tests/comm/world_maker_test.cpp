// The choice of a world from the table of members, and what connect() gives to the maker of a world.
#include "comm/world_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "comm/hosts/network_world.h"
#include "tests/comm/meeting.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Member member_on(int rank, const std::string& host, const std::string& boot_id) {
  return {.rank = rank, .world_size = 3, .host = host, .boot_id = boot_id};
}

bool is_over_network(const std::vector<Member>& members) {
  using Function = std::unique_ptr<World> (*)(const WorldRequest&);
  const WorldMaker maker = choose_world_maker(members);
  return *maker.target<Function>() == make_network_world;
}

TEST(ChooseWorldMaker, TakesSharedMemoryForRanksOfOneHost) {
  EXPECT_FALSE(is_over_network({member_on(0, "a", "x"), member_on(1, "a", "x"), member_on(2, "a", "x")}));
}

// Host names may repeat, and so may the boot ids of hosts that are containers of one machine.
TEST(ChooseWorldMaker, TakesTheNetworkIfOneRankIsOnAnotherHost) {
  for (const Member& last : {member_on(2, "b", "y"), member_on(2, "a", "y"), member_on(2, "b", "x")})
    EXPECT_TRUE(is_over_network({member_on(0, "a", "x"), member_on(1, "a", "x"), last})) << last.host << last.boot_id;
}

// A world whose operations nobody runs.
class IdleWorld final : public World {
 public:
  IdleWorld(const WorldRequest& request, std::string& log) : request_(request), log_(log) {}
  ProcessGroup& group() const override { return *group_; }
  std::string host() const override { return request_.members[request_.rank].host; }
  void close() override { log_ += "close "; }
  void abort(const std::string& reason) noexcept override { log_ += "abort(" + reason + ") "; }

 private:
  const WorldRequest request_;
  std::string& log_;
  std::unique_ptr<ProcessGroup> group_ = make_meta_group(request_.rank, static_cast<int>(request_.members.size()), "world");
};

// Connects two ranks, each on its own thread, with a maker that runs `made` before it returns an IdleWorld, and then runs
// `body`. Returns what was called on the worlds.
using Made = std::function<void(const WorldRequest&)>;
using Body = std::function<void(World&, JobState&)>;
struct FailedInBody {};
std::vector<std::string> connect_two(const Made& made, const Body& body) {
  Descriptor listener = listen_on("127.0.0.1", 0);
  const int port = port_of(listener);
  const Descriptor secret(::memfd_create("secret of the test", MFD_CLOEXEC));
  EXPECT_EQ(::write(secret.number(), "a secret of the test", 20), 20);
  std::vector<std::string> logs(2);
  const auto run = [&](int rank) {
    const Place place{.rank = rank,
                      .world_size = 2,
                      .master_port = port,
                      .job_id = "c0ffee",
                      .listen_descriptor = rank == 0 ? listener.release() : -1,
                      .secret_descriptor = secret.number()};
    std::shared_ptr<JobState> job;
    const auto choose = [&](const std::vector<Member>& members) -> WorldMaker {
      EXPECT_EQ(members.size(), 2u);
      return [&](const WorldRequest& request) {
        EXPECT_EQ(&request.members, &members);
        job = request.job;
        made(request);
        return std::make_unique<IdleWorld>(request, logs[rank]);
      };
    };
    try {
      const auto world = connect(place, {}, choose);
      body(*world, *job);
    } catch (const FailedInBody&) {
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  return logs;
}

TEST(Connect, GivesTheMakerWhatRanksNeedToFindEachOther) {
  const auto exchange_addresses = [](const WorldRequest& request) {
    EXPECT_EQ(request.job_id, "c0ffee");
    EXPECT_EQ(request.members[request.rank].rank, request.rank);
    const int other = 1 - request.rank;
    request.store.set("test/" + std::to_string(request.rank), "address of " + std::to_string(request.rank));
    request.meet();
    EXPECT_EQ(request.store.get("test/" + std::to_string(other), milliseconds(0)), "address of " + std::to_string(other));
    request.meet();
  };
  const auto logs = connect_two(exchange_addresses, [](World& world, JobState&) {
    EXPECT_EQ(world.size(), 2);
    world.close();
  });
  EXPECT_EQ(logs, (std::vector<std::string>{"close ", "close "}));
}

TEST(Connect, AWorldThatIsLeftIsClosedButNotWhileAnExceptionIsUnderWay) {
  const auto nothing = [](const WorldRequest&) {};
  EXPECT_EQ(connect_two(nothing, [](World&, JobState&) {}), (std::vector<std::string>{"close ", "close "}));
  const auto logs = connect_two(nothing, [](World& world, JobState&) {
    if (world.rank() == 1) throw FailedInBody();
    world.abort("the other failed");
  });
  EXPECT_EQ(logs, (std::vector<std::string>{"abort(the other failed) ", ""}));
}

TEST(Connect, EachMeetingWaitsForAllRanks) {
  std::atomic<int> arrived = 0;
  const auto meet_three_times = [&](const WorldRequest& request) {
    for (int meeting = 1; meeting <= 3; ++meeting) {
      if (request.rank == 1) std::this_thread::sleep_for(milliseconds(50));
      ++arrived;
      request.meet();
      EXPECT_GE(arrived, 2 * meeting) << "meeting " << meeting << " of rank " << request.rank << " was one of rank 0 alone";
    }
  };
  connect_two(meet_three_times, [](World& world, JobState&) { world.close(); });
}

TEST(Connect, TellsTheWorldsOfAllRanksWhoAborted) {
  const auto logs = connect_two([](const WorldRequest&) {},
                                [](World& world, JobState& job) {
                                  if (world.rank() == 1) return world.abort("the disk is full");
                                  ASSERT_TRUE(job.wait_for(milliseconds(5000)));
                                  EXPECT_EQ(job.accusation()->world_rank, 1);
                                  EXPECT_EQ(job.accusation()->cause, "abort: the disk is full");
                                  EXPECT_THAT(job.accusation()->host, HasSubstr("pid"));
                                });
  EXPECT_EQ(logs, (std::vector<std::string>{"", "abort(the disk is full) "}));
}

}  // namespace
}  // namespace trivet::comm
