// Recognizes signals that come several times for one event.
#pragma once

#include <csignal>

namespace trivet::cli {

// When a terminal is closed, the kernel and the shell each send SIGHUP, perhaps seconds apart; SIGXCPU comes again after each
// further second of processor time. So neither of them is somebody's second request, which ends a run at once.
inline bool may_be_repeated(int signal) { return signal == SIGHUP || signal == SIGXCPU; }

}  // namespace trivet::cli
