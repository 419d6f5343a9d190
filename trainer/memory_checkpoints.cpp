#include "trainer/memory_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/file_system.h"
#include "core/host_memory.h"
#include "engine/checkpoint/memory_room.h"
#include "engine/checkpoint/stored_pieces.h"
#include "trainer/checkpoints.h"

namespace trivet::trainer {
namespace {

constexpr const char* kDirectory = "checkpoint.memory.directory";
constexpr int kNeverEndsTheRun = 0;
constexpr int64_t kSeldom = 10;  // steps between saves for which training may wait

double mebibytes_of(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

MemoryCheckpoints::MemoryCheckpoints(Run& run, const std::string& run_id, const checkpoint::Tier& disk,
                                     checkpoint::Staging staging)
    : run_(run),
      config_(run.config.checkpoint.memory),
      group_(run.world.group().subgroup(all_ranks(run.world), "checkpoint.memory")),
      hosts_(checkpoint::find_hosts(*group_, run.world.host())) {
  warn_of_missing_replicas();
  warn_of_waiting();
  make_directory();
  store_ = std::make_unique<checkpoint::CheckpointStore>(
      real_file_system(), checkpoint::CheckpointStoreOptions{.directory = config_.directory,
                                                             .run_id = run_id,
                                                             .section = "checkpoint.memory",
                                                             .medium = checkpoint::Medium::Memory,
                                                             .lock_patience = lock_patience(),
                                                             .replicas = std::min(config_.replicas, hosts_.count() - 1),
                                                             .hosts = hosts_,
                                                             .is_in_place = [&] { return directory_->is_in_place(); },
                                                             .log = run.log});
  checkpoint::acquire(disk, tier(), run.resumes_own());
  check_room();
  saver_ = std::make_unique<checkpoint::AsyncSaver>(*store_, ranks(), staging_memory_, run.log, std::move(staging),
                                                    kNeverEndsTheRun);
}

// All ranks throw what the first of them has found.
void MemoryCheckpoints::make_directory() {
  const auto problems = ranks().gather([&]() -> std::string {
    if (!hosts_.leads()) return "";
    const std::string key = fmt::format("{}: {}", run_.config.source, kDirectory);
    try {
      if (!is_in_memory(config_.directory, key))
        return fmt::format("{}: \"{}\" is not on a file system in memory; name a directory below /dev/shm", key,
                           config_.directory);
      directory_.emplace(make_private_directory(config_.directory, key));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }());
  for (int host = 0; host < hosts_.count(); ++host)
    if (const std::string& problem = problems[hosts_.map.ranks[host].front()]; !problem.empty())
      throw ConfigError(hosts_.count() == 1 ? problem : fmt::format("{} (on host {})", problem, hosts_.names[host]));
}

void MemoryCheckpoints::warn_of_missing_replicas() const {
  if (config_.replicas < hosts_.count() || !run_.is_first_rank()) return;
  run_.log.warning(fmt::format(
      "checkpoint.memory.replicas: {} copies need {} hosts, and this job has {}: every file is kept on {}", config_.replicas,
      config_.replicas + 1, hosts_.count(), hosts_.count() == 1 ? "this host alone" : "each of them"));
}

void MemoryCheckpoints::warn_of_waiting() const {
  if (config_.every_steps >= kSeldom || !run_.is_first_rank()) return;
  const auto pieces = run_.engine.pieces_to_save();
  const auto is_staged = [](const checkpoint::Piece& piece) { return piece.staged != nullptr; };
  if (std::none_of(pieces.begin(), pieces.end(), is_staged)) return;
  run_.log.warning(fmt::format(
      "checkpoint.memory.every_steps: {}: states are offloaded, so training waits for each of these saves; save every {} steps "
      "or more seldom",
      config_.every_steps, kSeldom));
}

// A job that has lost hosts goes on, even if the others cannot hold its steps in memory any more.
void MemoryCheckpoints::check_room() {
  const int64_t here =
      hosts_.leads() ? checkpoint::room_for_steps(real_file_system(), config_.directory, available_host_memory()) : 0;
  const auto rooms =
      checkpoint::gather_room(checkpoint::bytes_of(run_.engine.pieces_to_save()), here, ranks(), hosts_, config_.replicas);
  size_t worst = 0;
  for (size_t host = 1; host < rooms.size(); ++host)
    if (rooms[host].left() < rooms[worst].left()) worst = host;
  const checkpoint::MemoryRoom& room = rooms[worst];
  const std::string every = config_.every_steps == 1 ? "step" : fmt::format("{} steps", config_.every_steps);
  description_ = fmt::format("every {} into memory, {}: at most {:.1f} of {:.1f} MiB on {}", every, config_.directory,
                             mebibytes_of(room.needed), mebibytes_of(room.available),
                             hosts_.count() == 1 ? "this host" : "host " + hosts_.names[worst]);
  if (room.left() >= 0) return;
  const std::string problem = fmt::format(
      "{}: {}: the steps in \"{}\" need {:.1f} MiB on host {} (the one that is kept, and the one that is being written), and "
      "{:.1f} MiB are free there",
      run_.config.source, kDirectory, config_.directory, mebibytes_of(room.needed), hosts_.names[worst],
      mebibytes_of(room.available));
  if (!run_.options.resume) {
    remove_if_empty();
    throw ConfigError(problem +
                      "; make that file system larger if the host has the memory, or set checkpoint.memory.every_steps to 0");
  }
  if (run_.is_first_rank()) run_.log.warning(problem + "; saves into memory may fail");
}

std::optional<checkpoint::LoadedStep> MemoryCheckpoints::open_newest(const checkpoint::Tier& disk) {
  return checkpoint::open_newest(disk, tier(), [&](const checkpoint::Manifest& manifest) {
    return checkpoint::files_with(manifest, run_.engine.pieces_to_load());
  });
}

bool MemoryCheckpoints::is_due() const { return run_.steps_done() % config_.every_steps == 0; }

void MemoryCheckpoints::save(const checkpoint::SaveRequest& request) {
  saver_->start(request, checkpoint::OnFailure::Continue);
  if (!run_.config.checkpoint.asynchronous) saver_->wait();
}

void MemoryCheckpoints::remove() { store_->remove_everything(ranks()); }

void MemoryCheckpoints::remove_if_empty() {
  if (store_->newest_step() < 0) remove();
}

}  // namespace trivet::trainer
