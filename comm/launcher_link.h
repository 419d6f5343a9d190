// The line between a rank and the launcher that started it: a socket that everything the launcher starts inherits
// (TRIVET_LAUNCHER_FD). Only the launcher's own processes hold the other end, and it closes when they are gone, however they
// ended: then nobody can end the ranks any more, and they end themselves. Over the same socket a rank tells which rank it has
// lost, so that the launcher can name that one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "comm/descriptor.h"
#include "core/error.h"

namespace trivet::comm {

struct Loss {
  int by = -1;    // who says so
  int rank = -1;  // who was lost
  ExitCode code = ExitCode::PeerLost;
  std::string cause;  // "eof", "silent", "abort: ..."
};

// One message each; nothing if it is not one of these.
std::string to_message(const Loss& loss);
std::optional<Loss> loss_from_message(std::string_view message);

// True if this is the socket of a launcher. It is not when a program in between closed its descriptors.
bool is_launcher_link(int descriptor);
// Never waits. Without a launcher (-1), nothing happens.
void tell_launcher(int descriptor, const Loss& loss) noexcept;

// Calls `on_gone` on a thread of its own when the launcher is gone. Watches until it is destroyed.
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
