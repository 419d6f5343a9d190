// A rank that does nothing but communicate and compute. The launcher's tests run it, kill it and stop it.
//
//   rank_program [--steps N] [--compute-ms N] [--silence-ms N] [--join-ms N] [--exit-code N --exit-rank R] [--abort REASON]
//                [--stop-before-join R]
//
// On SIGUSR1 the main thread stands still for good, while the process lives and its monitor continues.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "comm/launcher_link.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/log.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using namespace trivet;

std::map<std::string, std::string> flags_of(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  return flags;
}

// Reacts to nothing while it runs, like a matrix product.
void compute(milliseconds time) {
  volatile double sum = 0;
  for (const auto end = steady_clock::now() + time; steady_clock::now() < end;) sum = sum + 1;
}

// A signal to a process is handled by its main thread.
void stand_still(int) {
  for (;;) ::pause();
}

void work(comm::World& world, int64_t steps, milliseconds compute_time) {
  const auto stream = make_inline_stream();
  std::vector<float> values(100000, 1.0f);
  const TensorView data{values.data(), DType::Float32, Shape{static_cast<int64_t>(values.size())}};
  for (int64_t step = 0; step < steps; ++step) {
    world.group().all_reduce(data, comm::ReduceOp::Max, *stream);
    if (compute_time.count() > 0) compute(compute_time);
    if (step == 0 && world.rank() == 0) std::fputs("running\n", stderr);
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto flags = flags_of(argc, argv);
  const auto number = [&](const char* name, int64_t otherwise) {
    return flags.contains(name) ? std::atoll(flags[name].c_str()) : otherwise;
  };
  ::signal(SIGUSR1, stand_still);
  int rank = 0;
  try {
    const comm::Place place = comm::place_from_environment(comm::current_environment());
    rank = place.rank;
    if (rank == number("--stop-before-join", -1)) ::raise(SIGSTOP);
    comm::WorldOptions options;
    options.join_deadline = milliseconds(number("--join-ms", 30000));
    options.silence_deadline = milliseconds(number("--silence-ms", 5000));
    options.on_lost = [rank](const std::string& message, ExitCode code) {
      Log(rank).error(message);
      ::_exit(static_cast<int>(code));
    };
    const comm::LauncherWatch watch(place.launcher_descriptor, comm::guardian_from_environment(comm::current_environment()),
                                    [rank](const std::string& what) {
                                      Log(rank).error(what);
                                      ::_exit(static_cast<int>(ExitCode::PeerLost));
                                    });
    const auto world = comm::connect(place, options);
    fmt::print("rank {} of {} is connected\n", world->rank(), world->size());
    std::fflush(stdout);
    work(*world, number("--steps", 3), milliseconds(number("--compute-ms", 0)));
    if (rank == number("--exit-rank", -1)) {
      if (flags.contains("--abort")) world->abort(flags["--abort"]);
      return static_cast<int>(number("--exit-code", 0));
    }
    world->close();
    return 0;
  } catch (const Error& error) {
    Log(rank).error(error.what());
    return static_cast<int>(error.exit_code());
  }
}
