#include "comm/launcher_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

#include "comm/environment_reader.h"
#include "comm/member.h"
#include "comm/process_state.h"
#include "comm/stopped_for_long.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLongestCause = 400;
constexpr milliseconds kLookAtGuardian{1000};
constexpr int kMostSecondsOfPatience = 86400;

// Takes the number before the next space off `text`, and the space with it.
std::optional<int> take_number(std::string_view& text, int least, int most) {
  int value = 0;
  const size_t length = std::min(text.find(' '), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + length, value);
  if (error != std::errc() || end != text.data() + length || value < least || value > most) return std::nullopt;
  text.remove_prefix(std::min(length + 1, text.size()));
  return value;
}

// In a container, the number may be that of another process.
bool is_guardian(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  return std::getline(file, name) && name == kGuardianName;
}

}  // namespace

std::string to_message(const Loss& loss) {
  return fmt::format("lost {} {} {} {}", loss.by, loss.rank, static_cast<int>(loss.code), loss.cause.substr(0, kLongestCause));
}

std::optional<Loss> loss_from_message(std::string_view message) {
  constexpr std::string_view kStart = "lost ";
  if (!message.starts_with(kStart)) return std::nullopt;
  message.remove_prefix(kStart.size());
  const auto by = take_number(message, 0, kMaxRanks), rank = take_number(message, 0, kMaxRanks),
             code = take_number(message, 1, 125);
  if (!by || !rank || !code) return std::nullopt;
  return Loss{*by, *rank, static_cast<ExitCode>(*code), std::string(message.substr(0, kLongestCause))};
}

bool is_launcher_link(int descriptor) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void tell_launcher(int descriptor, const Loss& loss) noexcept {
  if (descriptor < 0) return;
  try {
    const std::string message = to_message(loss);
    ::send(descriptor, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } catch (const std::exception&) {  // out of memory: the launcher then names a rank by the order in which the ranks ended
  }
}

Guardian guardian_from_environment(const Environment& environment) {
  const EnvironmentReader variables(environment);
  const int64_t pid = variables.number_or("TRIVET_GUARDIAN_PID", 0, 1, int64_t{1} << 30);
  const int64_t patience = variables.number_or("TRIVET_HOST_TIMEOUT", 0, 0, kMostSecondsOfPatience);
  return patience > 0 ? Guardian{pid, std::chrono::seconds(patience)} : Guardian{};
}

LauncherWatch::LauncherWatch(int descriptor, const Guardian& guardian, OnGone on_gone) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw std::system_error(errno, std::generic_category(), "cannot watch the launcher");
  thread_ = std::thread([this, descriptor, guardian, on_gone = std::move(on_gone)] { watch(descriptor, guardian, on_gone); });
}

void LauncherWatch::watch(int descriptor, const Guardian& guardian, const OnGone& on_gone) const {
  std::optional<ProcessState> watched;
  if (guardian.pid > 0 && is_guardian(guardian.pid)) watched = state_of_process(guardian.pid);
  const milliseconds interval = watched ? std::min(kLookAtGuardian, guardian.patience / 4) : milliseconds(-1);
  StoppedForLong stopped(guardian.patience);
  while (true) {
    pollfd entries[] = {{stop_.number(), POLLIN, 0}, {descriptor, 0, 0}};
    ::poll(entries, 2, static_cast<int>(interval.count()));
    if (entries[0].revents != 0) return;
    if (entries[1].revents != 0) return on_gone("the launcher (trivet launch) has died");
    if (watched && stopped.look(is_stopped(guardian.pid, watched->started), std::chrono::steady_clock::now()))
      return on_gone(fmt::format("the process that watches over the ranks of this host (pid {}) has been stopped for {:.3g} s",
                                 guardian.pid, std::chrono::duration<double>(guardian.patience).count()));
  }
}

LauncherWatch::~LauncherWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

}  // namespace trivet::comm
