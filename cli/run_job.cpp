#include "cli/run_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/launch/cores.h"
#include "comm/launcher_link.h"
#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "engine/checkpoint/together.h"

namespace trivet::cli {
namespace {

// OpenMP accepts a list with a number for each level of nested loops. Only the first counts, because there is one level here.
int chosen_threads(std::string_view text) {
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  const bool whole = end == text.data() + text.size() || *end == ',';
  if (error != std::errc{} || !whole || threads < 1)
    throw ConfigError(
        fmt::format("OMP_NUM_THREADS={}: not accepted; use a number of threads, at least 1, or unset the variable to use "
                    "cores / ranks threads per rank",
                    printable(text)));
  return threads;
}

}  // namespace

// The default is cores / ranks, because more threads than cores make a step many times slower. OMP_NUM_THREADS is the user's
// own choice.
int threads_per_rank(int local_ranks) {
  if (const char* chosen = std::getenv("OMP_NUM_THREADS")) return chosen_threads(chosen);
  return std::max(1, static_cast<int>(allowed_cores().size()) / std::max(local_ranks, 1));
}

namespace {

// Null if no launcher started this rank.
std::unique_ptr<comm::LauncherWatch> watch_launcher(const comm::Place& place) {
  if (place.launcher_descriptor < 0) return nullptr;
  if (!comm::is_launcher_link(place.launcher_descriptor)) {
    Log(place.rank)
        .warning(fmt::format("TRIVET_LAUNCHER_FD={} is not the socket of trivet launch, perhaps because a program in "
                             "between closed it: this rank will not notice if the launcher is killed",
                             place.launcher_descriptor));
    return nullptr;
  }
  return std::make_unique<comm::LauncherWatch>(place.launcher_descriptor,
                                               comm::guardian_from_environment(comm::current_environment()),
                                               [rank = place.rank](const std::string& what) {
                                                 Log(rank).error(what + " and can no longer end this rank: it ends itself");
                                                 std::_Exit(static_cast<int>(ExitCode::PeerLost));
                                               });
}

std::chrono::milliseconds milliseconds_of(double time) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(time));
}

}  // namespace

comm::WorldOptions world_options(const CommunicationConfig& communication) {
  comm::WorldOptions options;
  options.transport = name_of(communication.transport);
  options.network_interface = communication.interface;
  options.sums = communication.sums == SumsChoice::Exchange ? comm::HostSums::Exchange : comm::HostSums::Chain;
  options.join_deadline = milliseconds_of(communication.join_seconds);
  options.silence_deadline = milliseconds_of(communication.silence_seconds);
  options.operation_deadline = milliseconds_of(communication.progress_seconds);
  return options;
}

bool is_idle_task() {
  const auto why = comm::idle_task(comm::current_environment());
  if (why) fmt::print("{}\n", *why);
  return why.has_value();
}

void run_job(int ranks, const CommunicationConfig& communication, const std::function<void(RankBody)>& body) {
  const comm::Place place = comm::place_from_environment(comm::current_environment());
  const auto watch = watch_launcher(place);
  comm::WorldOptions options = world_options(communication);
  if (ranks > 0) {
    if (place.world_size > 1)
      throw ConfigError(fmt::format("--ranks {}: this process is already rank {} of {} ({}); leave --ranks out", ranks,
                                    place.rank, place.world_size, place.source));
    comm::run_threads(
        ranks,
        [&](comm::World& world) {
          body({world, threads_per_rank(ranks), world.rank()});
        },
        options);
    return;
  }
  // The monitor's thread calls this; it ends the rank even while it computes or waits for a message that will never come.
  options.on_lost = [rank = place.rank](const std::string& message, ExitCode code) {
    Log(rank).error(message);
    std::_Exit(static_cast<int>(code));
  };
  const auto world = comm::connect(place, options);
  try {
    body({*world, threads_per_rank(place.local_size), place.local_rank});
  } catch (const std::bad_alloc&) {
    world->abort("out of host memory");
    throw;
  } catch (const checkpoint::FailedHere& error) {
    // The others fail with it, but could go on without this host.
    if (error.exit_code() == ExitCode::CheckpointNotWritten)
      comm::tell_launcher(place.launcher_descriptor, {place.rank, place.rank, error.exit_code(), "could not write its files"});
    world->abort(error.what());
    throw;
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw;
  }
  world->close();
}

}  // namespace trivet::cli
