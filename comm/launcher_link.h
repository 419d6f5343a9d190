// The connection between a rank and the launcher that started it: a socket that every process the launcher starts inherits
// (TRIVET_LAUNCHER_FD). Only the launcher's own processes hold the other end, which closes when they are gone, however they
// ended. Nobody is then left to end the ranks, so they end themselves. A rank also tells the launcher over this socket which
// rank it has lost, so that the launcher can name that rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

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

// Calls `on_gone` on its own thread when the launcher is gone. Watches until it is destroyed.
class LauncherWatch {
 public:
  LauncherWatch(int descriptor, std::function<void()> on_gone);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace trivet::comm
