// The directory of a store of checkpoints, as all parts of the store use it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/log.h"
#include "engine/checkpoint/host_copies.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/step_copies.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

// Disk: steps stay until retention removes them, and damaged ones are set aside for inspection.
// Memory: each host has a directory of its own, made by the caller. It holds only the newest step, and nothing for inspection.
enum class Medium : uint8_t { Disk, Memory };

struct CheckpointStoreOptions {
  std::string directory;
  std::string run_id;  // [A-Za-z0-9._-]{1,64}
  // The job that a launcher starts again, and the number of this start; empty: nobody does. A later start may take the
  // directory from an earlier one that gives no sign of life any more (kLockLease).
  std::string job = {};
  int64_t start_of_job = 0;
  std::string section = "checkpoint";  // section of the config, for messages
  Medium medium = Medium::Disk;
  int64_t keep = 0;  // on disk: clean steps that retention keeps (retention.h); 0: all
  // The time that acquire() waits for another job to leave the directory: a killed job may take seconds to end.
  std::chrono::milliseconds lock_patience{0};
  // Above 0: every host has a directory of its own and keeps a copy of the files of that many hosts before it. Any
  // that many hosts next to each other can be lost.
  int replicas = 0;
  // Must be given with replicas and in memory; otherwise, more than one host is only checked to share the directory.
  JobHosts hosts = {};
  // In memory: whether the directory is still the one that the caller made (HeldDirectory). Nothing is written to, or removed
  // from, another one. Asked on leaders.
  std::function<bool()> is_in_place = {};
  Log log = {};
  const Clock* clock = &system_clock();
};

// Prefixes for a step that is being written, and for one that is about to be removed; then the names of files.
inline constexpr std::string_view kTemporary = ".tmp-", kTrash = ".trash-";
inline constexpr const char *kLock = ".lock", *kDisk = ".disk";
inline constexpr std::chrono::milliseconds kLockInterval{50};  // between two looks at what another host or job does

// Checks whether only a store names something so: another program's ".tmp-work" is not removed.
bool is_left_over(std::string_view name);

[[noreturn]] void throw_not_written(const std::string& text);

struct StoreDirectory {
  StoreDirectory(FileSystem& file_system, CheckpointStoreOptions given)
      : files(file_system), options(std::move(given)), copies(file_system, options.directory) {}
  StoreDirectory(const StoreDirectory&) = delete;
  StoreDirectory& operator=(const StoreDirectory&) = delete;

  FileSystem& files;
  CheckpointStoreOptions options;
  StepCopies copies;                  // on leaders
  std::vector<std::string> warnings;  // all that were logged

  std::string path(std::string_view name) const { return options.directory + "/" + std::string(name); }
  std::string key(const std::string& name) const { return options.section + "." + name; }
  bool in_memory() const { return options.medium == Medium::Memory; }
  bool per_host() const { return in_memory() || options.replicas > 0; }
  bool leads(const Participants& ranks) const { return per_host() ? options.hosts.leads() : ranks.rank == 0; }
  HostDirectory host_directory(const Participants& ranks) { return {files, options.directory, options.hosts, ranks}; }
  bool is_in_place() const { return !options.is_in_place || options.is_in_place(); }
  // Asked before a save, before its commit and before steps are removed, not in every call (docs/security.md).
  void require_in_place() const;
  void remove_if_there(const std::string& name);
  // Removes what killed jobs left, and restores a step that one of them had moved aside.
  void clear_leftovers();
  void warn(const std::string& text);

  // Runs work on the leaders, and returns what it returned there, by rank.
  template <typename Work>
  std::vector<std::string> on_leaders(const Participants& ranks, Work&& work) const {
    return together(ranks, [&]() -> std::string { return leads(ranks) ? work() : ""; });
  }
  // Runs work whose failure must not undo a commit.
  template <typename Work>
  void best_effort(const char* what, Work&& work) {
    try {
      work();
    } catch (const FileError& error) {
      if (is_in_place()) warn(std::string("checkpoint: ") + what + ": " + error.what());  // otherwise the next save says so
    }
  }
};

}  // namespace trivet::checkpoint
