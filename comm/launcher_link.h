// The connection between a rank and the launcher that started it: a socket that every process the launcher starts inherits
// (TRIVET_LAUNCHER_FD). Only the launcher's own processes hold the other end, which closes when they are gone, however they
// ended. Nobody is then left to end the ranks, so they end themselves. The same holds on the hosts of a job whose launcher is
// on another host (TRIVET_GUARDIAN_PID) if the launcher's process that started the ranks, their guardian, is stopped: the
// launcher takes such a host for lost and puts another one in its place. A rank also tells the launcher over this socket which
// rank it has lost, so that the launcher can name that rank.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "comm/world.h"
#include "core/descriptor.h"
#include "core/error.h"

namespace trivet::comm {

struct Loss {
  int by = -1;    // the rank that reports it
  int rank = -1;  // the lost rank
  ExitCode code = ExitCode::PeerLost;
  std::string cause;  // "eof", "silent", "abort: ..."
};

// Each loss is one message. loss_from_message returns nullopt for any other message.
std::string to_message(const Loss& loss);
std::optional<Loss> loss_from_message(std::string_view message);

// True if this is the socket of a launcher. It is not when a program in between closed its descriptors.
bool is_launcher_link(int descriptor);
// Never waits. Without a launcher (-1), nothing happens.
void tell_launcher(int descriptor, const Loss& loss) noexcept;

// The process that has started the ranks of this host, as ps shows it.
inline constexpr const char* kGuardianName = "rank-guardian";

struct Guardian {
  int64_t pid = 0;                        // 0: it may be stopped for as long as anybody likes
  std::chrono::milliseconds patience{0};  // the longest that it may be stopped
};
// TRIVET_GUARDIAN_PID and TRIVET_HOST_TIMEOUT. Throws ConfigError if they are not numbers.
Guardian guardian_from_environment(const Environment& environment);

// Calls `on_gone` on its own thread, with a text that says what has happened, when the launcher is gone, or when the guardian
// has been stopped for longer than its patience. Watches until it is destroyed.
class LauncherWatch {
 public:
  using OnGone = std::function<void(const std::string& what)>;
  LauncherWatch(int descriptor, const Guardian& guardian, OnGone on_gone);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void watch(int descriptor, const Guardian& guardian, const OnGone& on_gone) const;

  Descriptor stop_;
  std::thread thread_;
};

}  // namespace trivet::comm
