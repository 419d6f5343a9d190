// Ranks that find each other through the store and communicate over the transport's module, as ranks on several hosts do. Here
// they are threads of one process, which use the interface lo.
#include "comm/hosts/network_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <mutex>
#include <set>
#include <thread>

#include "tests/comm/meeting.h"
#include "tests/comm/ranks.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Sets a variable of the environment while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

// Connects ranks, each with its options and on its own thread, and runs `body` on them. Returns how they ended.
std::vector<Outcome> connect_ranks(const std::vector<WorldOptions>& options, const std::function<void(World&)>& body,
                                   const WorldMaker& maker = make_network_world) {
  const auto ranks = static_cast<int>(options.size());
  Descriptor listener = listen_on("127.0.0.1", 0);
  const int port = port_of(listener);
  const Descriptor secret(::memfd_create("secret of the test", MFD_CLOEXEC));
  EXPECT_EQ(::write(secret.number(), "a secret of the test", 20), 20);
  std::vector<Outcome> outcomes(ranks);
  const auto run = [&](int rank) {
    const Place place{.rank = rank,
                      .world_size = ranks,
                      .master_port = port,
                      .job_id = "c0ffee",
                      .listen_descriptor = rank == 0 ? listener.release() : -1,
                      .secret_descriptor = secret.number()};
    const auto choose = [&](const std::vector<Member>&) { return maker; };
    outcomes[rank] = outcome_of([&] { body(*connect(place, options[rank], choose)); });
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> connect_ranks(int ranks, const WorldOptions& options, const std::function<void(World&)>& body) {
  return connect_ranks(std::vector<WorldOptions>(ranks, options), body);
}

void expect_sums(const WorldOptions& options) {
  const auto outcomes = connect_ranks(3, options, [](World& world) {
    std::vector<float> data(100000, static_cast<float>(world.rank() + 1));
    const auto stream = make_inline_stream();
    world.group().all_reduce(view(data), ReduceOp::Sum, *stream);
    EXPECT_EQ(data, std::vector<float>(data.size(), 6.0f));
    world.close();
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(NetworkWorld, RanksOverUcxSumAndLeaveTogether) {
#ifndef TRIVET_HAS_UCX
  GTEST_SKIP() << "UCX was not found when this was built (Debian: libucx-dev)";
#endif
  const Variable module("TRIVET_UCX_MODULE", TRIVET_BINARY_DIR "/libtrivet_ucx.so");
  expect_sums({});
}

TEST(NetworkWorld, SaysHowHostsCommunicate) {
#ifndef TRIVET_HAS_UCX
  GTEST_SKIP() << "UCX was not found when this was built (Debian: libucx-dev)";
#endif
  const Variable module("TRIVET_UCX_MODULE", TRIVET_BINARY_DIR "/libtrivet_ucx.so");
  const auto body = [](World& world) {
    EXPECT_THAT(world.network(), HasSubstr("1 host, UCX "));
    EXPECT_THAT(world.network(), HasSubstr(" over lo, 127.0.0.1"));
    world.close();
  };
  for (const Outcome& outcome : connect_ranks(2, {}, body)) EXPECT_EQ(outcome.error, "");
}

// Whoever knows the key of messages can send them in the place of a rank.
TEST(NetworkWorld, EveryJobDrawsItsOwnKeyForMessages) {
#ifndef TRIVET_HAS_UCX
  GTEST_SKIP() << "UCX was not found when this was built (Debian: libucx-dev)";
#endif
  const Variable module("TRIVET_UCX_MODULE", TRIVET_BINARY_DIR "/libtrivet_ucx.so");
  std::set<std::string> keys;
  std::mutex mutex;
  const auto note_key = [&](const WorldRequest& request) {
    auto world = make_network_world(request);
    const std::lock_guard lock(mutex);
    keys.insert(request.store.get("network/key", milliseconds(0)).value_or("none"));
    return world;
  };
  for (int job = 0; job < 3; ++job)
    for (const Outcome& outcome : connect_ranks(
             std::vector<WorldOptions>(2), [](World& world) { world.close(); }, note_key))
      EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(keys.size(), 3u) << "the ranks of a job have the same key, and two jobs have different ones";
  for (const std::string& key : keys) EXPECT_EQ(key.size(), 16u) << key;
}

TEST(NetworkWorld, RefusesRanksThatAddInDifferentOrders) {
#ifndef TRIVET_HAS_UCX
  GTEST_SKIP() << "UCX was not found when this was built (Debian: libucx-dev)";
#endif
  const Variable module("TRIVET_UCX_MODULE", TRIVET_BINARY_DIR "/libtrivet_ucx.so");
  std::vector<WorldOptions> options(3);
  options[2].sums = HostSums::Exchange;
  for (const Outcome& outcome : connect_ranks(options, [](World&) {})) {
    EXPECT_EQ(outcome.code, ExitCode::RanksDisagree);
    EXPECT_THAT(outcome.error, HasSubstr("communication.sums: rank 0 ("));
    EXPECT_THAT(outcome.error, HasSubstr(") has \"chain\", but rank 2 ("));
    EXPECT_THAT(outcome.error, HasSubstr(") has \"exchange\"; give all ranks the same config"));
  }
}

TEST(NetworkWorld, RanksOverGlooSumAndLeaveTogetherAndOpenNoUcx) {
#ifndef TRIVET_HAS_GLOO
  GTEST_SKIP() << "gloo was not found when this was built (Debian: libgloo-dev)";
#endif
  const Variable module("TRIVET_GLOO_MODULE", TRIVET_BINARY_DIR "/libtrivet_gloo.so");
  const Variable other("TRIVET_UCX_MODULE", "/no/such/module.so");
  WorldOptions options;
  options.transport = "gloo";
  expect_sums(options);
}

TEST(NetworkWorld, SaysThatRanksHaveDifferentTransports) {
#if !defined(TRIVET_HAS_UCX) || !defined(TRIVET_HAS_GLOO)
  GTEST_SKIP() << "this was built without one of them (Debian: libucx-dev, libgloo-dev)";
#endif
  const Variable ucx("TRIVET_UCX_MODULE", TRIVET_BINARY_DIR "/libtrivet_ucx.so");
  const Variable gloo("TRIVET_GLOO_MODULE", TRIVET_BINARY_DIR "/libtrivet_gloo.so");
  std::vector<WorldOptions> options(2);
  options[1].transport = "gloo";
  for (const Outcome& outcome : connect_ranks(options, [](World&) {})) {
    EXPECT_EQ(outcome.code, ExitCode::RanksDisagree);
    EXPECT_THAT(outcome.error, HasSubstr("sends messages between hosts over UCX "));
    EXPECT_THAT(outcome.error, HasSubstr("over gloo "));
    EXPECT_THAT(outcome.error, HasSubstr("give all ranks the same communication.transport"));
  }
}

TEST(NetworkWorld, SaysWhichModuleOfGlooIsMissingAndUsesNoOther) {
  const Variable module("TRIVET_GLOO_MODULE", "/no/such/module.so");
  WorldOptions options;
  options.transport = "gloo";
  for (const Outcome& outcome : connect_ranks(2, options, [](World&) {})) {
    EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
    EXPECT_THAT(
        outcome.error,
        HasSubstr(
            "libtrivet_gloo.so for messages between them could not be opened; install the package trivet-gloo, or libgloo0 and "
            "build with libgloo-dev installed (/no/such/module.so"));
  }
}

TEST(NetworkWorld, SaysWhichModuleIsMissingAndWhichOtherThereIs) {
  const Variable module("TRIVET_UCX_MODULE", "/no/such/module.so");
  for (const Outcome& outcome : connect_ranks(2, {}, [](World&) {})) {
    EXPECT_EQ(outcome.code, ExitCode::Rendezvous);
    EXPECT_THAT(
        outcome.error,
        HasSubstr("the module libtrivet_ucx.so for messages between them could not be opened; install the package trivet-ucx"));
    EXPECT_THAT(outcome.error, HasSubstr("/no/such/module.so"));
    EXPECT_THAT(outcome.error, HasSubstr("or choose the other transport: communication.transport \"gloo\""));
  }
}

TEST(NetworkWorld, RefusesAModuleOfAnotherBuild) {
  const Variable module("TRIVET_UCX_MODULE", "libm.so.6");
  for (const Outcome& outcome : connect_ranks(2, {}, [](World&) {})) {
    EXPECT_EQ(outcome.code, ExitCode::VersionSkew);
    EXPECT_THAT(outcome.error, HasSubstr("libm.so.6 is for \"no version of Trivet\""));
  }
}

TEST(NetworkWorld, SaysWhichInterfacesThereAre) {
  WorldOptions options;
  options.network_interface = "ib7";
  for (const Outcome& outcome : connect_ranks(2, options, [](World&) {}))
    EXPECT_THAT(outcome.error, HasSubstr("communication.interface: \"ib7\" is not an interface of this host"));
}

}  // namespace
}  // namespace trivet::comm
