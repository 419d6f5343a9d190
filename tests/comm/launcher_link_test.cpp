// Tests the link between ranks and their launcher: which messages it carries, and how its end is noticed.
#include "comm/launcher_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

namespace trivet::test {
namespace {

using namespace comm;

std::pair<Descriptor, Descriptor> link() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

TEST(LauncherLink, CarriesALossAsOneMessage) {
  const auto [launcher, rank] = link();
  tell_launcher(rank.number(), {3, 5, ExitCode::NoProgress, "has not entered all_reduce"});
  tell_launcher(rank.number(), {4, 0, ExitCode::PeerLost, ""});
  char buffer[512];
  const ssize_t size = ::recv(launcher.number(), buffer, sizeof buffer, MSG_DONTWAIT);
  ASSERT_GT(size, 0);
  const auto loss = loss_from_message({buffer, static_cast<size_t>(size)});
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->by, 3);
  EXPECT_EQ(loss->rank, 5);
  EXPECT_EQ(loss->code, ExitCode::NoProgress);
  EXPECT_EQ(loss->cause, "has not entered all_reduce");
  const ssize_t second = ::recv(launcher.number(), buffer, sizeof buffer, MSG_DONTWAIT);
  ASSERT_GT(second, 0);
  EXPECT_EQ(loss_from_message({buffer, static_cast<size_t>(second)})->by, 4);
}

TEST(LauncherLink, CutsLongCauses) {
  const auto loss = loss_from_message(to_message({0, 1, ExitCode::PeerLost, std::string(100000, 'x')}));
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->cause.size(), 400u);
}

TEST(LauncherLink, RefusesWhatIsNoLoss) {
  for (const char* text :
       {"", "lost", "lost ", "lost 1", "lost 1 2", "lost x 2 10 eof", "lost 1 -2 10 eof", "lost 1 2 0 eof", "lost 1 2 126 eof",
        "lost 1 2 1000 eof", "lost 99999999999 2 10 eof", "lost 1 2x 10 eof", "LOST 1 2 10 eof"})
    EXPECT_FALSE(loss_from_message(text)) << text;
}

TEST(LauncherLink, DoesNotWaitForALauncherThatDoesNotRead) {
  const auto [launcher, rank] = link();
  for (int i = 0; i < 10000; ++i) tell_launcher(rank.number(), {0, 1, ExitCode::PeerLost, "eof"});
  tell_launcher(-1, {0, 1, ExitCode::PeerLost, "eof"});
}

TEST(LauncherLink, IsToldFromOtherDescriptors) {
  const auto [launcher, rank] = link();
  EXPECT_TRUE(is_launcher_link(rank.number()));
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(is_launcher_link(file.number()));
  const Descriptor network(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(is_launcher_link(network.number()));
  const Descriptor stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(is_launcher_link(stream.number()));
  EXPECT_FALSE(is_launcher_link(-1));
}

TEST(LauncherWatch, NoticesTheEndOfTheLauncher) {
  auto [launcher, rank] = link();
  const Descriptor guardian(::fcntl(launcher.number(), F_DUPFD_CLOEXEC, 0));
  std::promise<void> gone;
  auto noticed = gone.get_future();
  const LauncherWatch watch(rank.number(), {}, [&](const std::string&) { gone.set_value(); });
  launcher.reset();  // the guardian still holds its end
  EXPECT_EQ(noticed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  ::shutdown(guardian.number(), SHUT_RDWR);
  EXPECT_EQ(noticed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(LauncherWatch, EndsQuietlyWhileTheLauncherLives) {
  const auto [launcher, rank] = link();
  bool called = false;
  {
    const LauncherWatch watch(rank.number(), {}, [&](const std::string&) { called = true; });
  }
  EXPECT_FALSE(called);
}

// A process that does nothing, until it is destroyed.
class IdleProcess {
 public:
  explicit IdleProcess(const char* name) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_NAME, name);
    ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  ~IdleProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;

  pid_t pid() const { return pid_; }
  void wait_until_stopped() const { ::waitpid(pid_, nullptr, WUNTRACED); }

 private:
  pid_t pid_;
};

TEST(LauncherWatch, NoticesThatTheGuardianIsStopped) {
  constexpr std::chrono::milliseconds kPatience{40}, kLong{150};
  struct Case {
    const char *what, *name;
    bool continues, is_watched, is_noticed;
  };
  for (const Case& one : {Case{"stopped", kGuardianName, false, true, true}, Case{"runs", kGuardianName, true, true, false},
                          Case{"nobody asked for it", kGuardianName, false, false, false},
                          Case{"another process has its number", "sleep", false, true, false}}) {
    const auto [launcher, rank] = link();
    const IdleProcess guardian(one.name);
    guardian.wait_until_stopped();
    if (one.continues) ::kill(guardian.pid(), SIGCONT);
    std::promise<std::string> gone;
    auto noticed = gone.get_future();
    const LauncherWatch watch(rank.number(), {one.is_watched ? guardian.pid() : 0, kPatience},
                              [&](const std::string& what) { gone.set_value(what); });
    if (one.is_noticed) {
      ASSERT_EQ(noticed.wait_for(std::chrono::seconds(60)), std::future_status::ready) << one.what;
      EXPECT_EQ(noticed.get(),
                fmt::format("the process that watches over the ranks of this host (pid {}) has been stopped for 0.04 s",
                            guardian.pid()));
    } else {
      EXPECT_EQ(noticed.wait_for(kLong), std::future_status::timeout) << one.what;
    }
  }
}

TEST(LauncherWatch, LearnsFromTheEnvironmentWhichGuardianToWatch) {
  const auto read = [](const Environment& environment) {
    const Guardian guardian = guardian_from_environment(environment);
    return std::pair(guardian.pid, guardian.patience.count());
  };
  EXPECT_EQ(read({}), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(read({{"TRIVET_HOST_TIMEOUT", "6"}}), std::pair(int64_t{0}, int64_t{6000}));  // a local job
  EXPECT_EQ(read({{"TRIVET_GUARDIAN_PID", "12"}}), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(read({{"TRIVET_GUARDIAN_PID", "12"}, {"TRIVET_HOST_TIMEOUT", "6"}}), std::pair(int64_t{12}, int64_t{6000}));
  EXPECT_THROW(read({{"TRIVET_GUARDIAN_PID", "no"}}), ConfigError);
}

}  // namespace
}  // namespace trivet::test
