#include "tests/comm/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>
#include <random>

#include "comm/futex.h"
#include "comm/hosts/hosts_world.h"
#include "comm/shm/shm_memory.h"
#include "comm/shm/shm_world.h"
#include "comm/threads/rank_threads.h"
#include "comm/transport/transport_world.h"
#include "tests/comm/gloo_transports.h"
#include "tests/comm/socket_transport.h"
#include "tests/comm/ucx_transports.h"

namespace trivet::comm {
namespace {

// A barrier for forked ranks: meet() returns once all ranks have called it as often as this one.
struct Arrival {
  std::atomic<int> ranks{0};
  SharedCounter calls;

  void meet(int& own_calls) {
    ++own_calls;
    calls.advance();
    while (!calls.wait(static_cast<uint32_t>(ranks * own_calls), std::chrono::milliseconds(20))) {
    }
  }
};

// Begins the names of segments of this process, and of the processes that it starts. The number tells its segments from those
// that a process of the same id may have left behind earlier.
const std::string kSegmentPrefix = "trivet-" + std::to_string(getpid()) + "-" + std::to_string(std::random_device()());

int run_body(const ShmPlace& place, const Processes::Body& body, const WorldOptions& options) {
  try {
    const auto job = std::make_shared<JobState>();
    const auto world = make_shm_world(place, options, job);
    body(*world, *job);
  } catch (const std::exception& error) {
    std::cerr << "rank " << place.rank << ": " << error.what() << std::endl;
    return 1;
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace

SharedPage::SharedPage(size_t bytes)
    : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)), bytes_(bytes) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

SharedPage::~SharedPage() { munmap(data_, bytes_); }

Processes::Processes(int ranks, const Body& body, const WorldOptions& options) : meeting_(4096) {
  static int jobs = 0;
  auto* meeting = new (meeting_.data()) Arrival;
  meeting->ranks = ranks;
  ShmPlace place;
  place.size = ranks;
  place.segment_name = "/" + kSegmentPrefix + "-" + std::to_string(++jobs);
  place.host = "here";
  std::cout.flush();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int calls = 0;
      place.rank = rank;
      place.barrier = [&] { meeting->meet(calls); };
      const int status = run_body(place, body, options);
      std::cout.flush();
      _exit(status);
    }
    pids_.push_back(pid);
  }
}

Processes::~Processes() {
  for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) {
    if (pid(rank) > 0) kill(pid(rank), SIGKILL);
    wait(rank);
  }
}

int Processes::wait(int rank) {
  pid_t& pid = pids_[rank];
  int status = 0;
  if (pid <= 0 || waitpid(pid, &status, 0) != pid) return -1;
  pid = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void run_on_hosts(const std::vector<int>& hosts, const std::function<void(World&)>& body, const WorldOptions& options,
                  const WrapTransport& wrap) {
  static int jobs = 0;
  const std::string prefix = "/" + kSegmentPrefix + "-hosts" + std::to_string(++jobs);
  std::map<int, std::shared_ptr<SharedMemory>> memories;
  std::map<int, std::shared_ptr<std::byte>> boards;
  for (int host : hosts) {
    if (memories.count(host)) continue;
    memories[host] = std::make_shared<ShmMemory>(prefix + "-" + std::to_string(host), nullptr);
    const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host));
    const auto board = memories[host]->create_board(HostsGroup::board_bytes(here, *memories[host]));
    memories[host]->unlink_board(board.token);
    boards[host] = board.memory;
  }
  auto transports = socket_transports(static_cast<int>(hosts.size()));
  if (wrap)
    for (auto& transport : transports) transport = wrap(std::move(transport));
  const auto make = [&](RankInGroup self, JobView job) {
    const int host = hosts[self.rank];
    for (int of_rank : hosts) job.hosts.push_back("host" + std::to_string(of_rank));
    auto transport = std::make_shared<RankTransport>(std::move(transports[self.rank]), 64 << 10);
    return make_hosts_world({std::move(transport), memories[host], hosts, options.sums}, self, job, boards[host]);
  };
  run_rank_threads(static_cast<int>(hosts.size()), make, body, options);
}

std::vector<std::vector<int>> added_first(Kind kind, int ranks) {
  std::vector<std::vector<int>> first;
  for (int rank = 0; rank < ranks; ++rank) {
    if (kind != Kind::ExchangingHosts || rank % 2 == 0) first.emplace_back();
    first.back().push_back(rank);
  }
  return first;
}

void run_ranks(Kind kind, int ranks, const std::function<void(World&)>& body, const WorldOptions& options) {
  if (kind == Kind::Threads) return run_threads(ranks, body, options);
  if (kind == Kind::Hosts || kind == Kind::ExchangingHosts) {
    std::vector<int> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / 2);
    WorldOptions of_kind = options;
    if (kind == Kind::ExchangingHosts) of_kind.sums = HostSums::Exchange;
    return run_on_hosts(hosts, body, of_kind);
  }
  if (kind != Kind::Processes) {
    auto transports = kind == Kind::Ucx    ? ucx_transports(ranks)
                      : kind == Kind::Gloo ? gloo_transports(ranks)
                                           : socket_transports(ranks);
    const auto make = [&](RankInGroup self, JobView job) {
      constexpr int64_t kSegment = 64 << 10;  // so that sums of larger tensors need several
      auto transport = std::move(transports[self.rank]);
      return make_transport_world(std::move(transport), std::move(self), std::move(job), kSegment);
    };
    return run_rank_threads(ranks, make, body, options);
  }
  Processes processes(
      ranks, [&](World& world, JobState&) { body(world); }, options);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

Caught catch_comm_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    return {error.what(), error.exit_code()};
  }
  return {};
}

std::vector<std::string> leftovers() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().starts_with(kSegmentPrefix)) names.push_back(entry.path());
  return names;
}

TEST(ShmWorld, LeavesNothingInDevShmOnceAllAreAttached) {
  run_ranks(Kind::Processes, 3, [](World& world) {
    const auto pair = world.group().subgroup({0, 2}, "pair");
    world.close();
    EXPECT_EQ(leftovers(), std::vector<std::string>{});
  });
}

}  // namespace trivet::comm
