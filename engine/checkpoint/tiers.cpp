#include "engine/checkpoint/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

StepAge age_of(const std::optional<LoadedStep>& step) {
  return step ? StepAge{step->manifest().start, step->step()} : StepAge{};
}

std::optional<LoadedStep> find_newest(const Tier& disk, const Tier& memory, const FilesToRead& needed) {
  const StepAge newest_on_disk = disk.store.newest_found();
  if (auto step = memory.store.open_newer(newest_on_disk, memory.ranks, needed)) {
    disk.store.abandon_steps_after(step->step(), disk.ranks);
    return step;
  }
  std::optional<LoadedStep> on_disk;
  std::exception_ptr none_is_valid;
  try {
    on_disk = disk.store.open_latest(disk.ranks);
  } catch (const CheckpointError& error) {
    if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
    none_is_valid = std::current_exception();
  }
  if (age_of(on_disk) < newest_on_disk)  // the newest on disk has turned out to be damaged
    if (auto step = memory.store.open_newer(age_of(on_disk), memory.ranks, needed)) return step;
  if (none_is_valid) std::rethrow_exception(none_is_valid);
  return on_disk;
}

std::string absolute(const std::string& directory) {
  std::error_code ignored;
  const auto path = std::filesystem::weakly_canonical(directory, ignored);
  return (path.empty() ? std::filesystem::path(directory) : path).string();
}

// Checks whether one of the hosts, or rank 0 if they share a directory, sees a directory with this path.
bool sees_directory(const Tier& disk, const std::string& path) {
  StoreDirectory& place = disk.store.place();
  const auto seen = place.on_leaders(disk.ranks, [&] { return place.files.kind(path) == EntryKind::Directory ? "yes" : ""; });
  return std::ranges::find(seen, "yes") != seen.end();
}

// A copied config or directory of checkpoints makes a run of its own. It must not go on from the steps of the run that it was
// copied from, nor that one later from its steps. If the other directory is gone, it was moved, or lost with its disk.
void refuse_steps_of_another_disk(const Tier& disk, const Tier& memory) {
  const std::string own = absolute(disk.store.directory());
  for (const std::string& other : remembered_disks(memory.store.place(), memory.ranks)) {
    if (other == own) continue;
    if (sees_directory(disk, other))
      throw ConfigError(fmt::format(
          "checkpoint.memory.directory: \"{}\" holds steps of the run whose checkpoint.directory is \"{}\", and this one's is "
          "\"{}\"; give each run a directory of its own in memory, or remove this one on all hosts if its steps are not wanted",
          memory.store.directory(), other, own));
    if (disk.ranks.rank == 0)
      disk.store.warn(
          fmt::format("checkpoint.directory: \"{}\" is not there any more; the run whose steps are in \"{}\" goes on in "
                      "\"{}\"",
                      other, memory.store.directory(), own));
  }
}

}  // namespace

void acquire(const Tier& disk, const Tier& memory, bool resumes) {
  disk.store.acquire(disk.ranks);
  Lineage known = disk.store.lineage();
  const Lineage before = resumes ? remembered_lineage(disk.store.place(), disk.ranks, known.origin) : Lineage{};
  if (known.origin.empty()) known.origin = before.origin;
  known.start = std::max(known.start, before.start + 1);
  memory.store.acquire(memory.ranks, known);
  if (resumes) refuse_steps_of_another_disk(disk, memory);
  if (resumes && known.origin.empty() && memory.store.newest_step() >= 0 && disk.ranks.rank == 0)
    disk.store.warn(fmt::format("checkpoint.directory: \"{}\" tells of no run; the one whose steps are in \"{}\" goes on",
                                disk.store.directory(), memory.store.directory()));
  disk.store.set_lineage(memory.store.lineage());  // memory may know of a later start, which has saved nothing on disk
  const bool any_steps = disk.store.newest_step() >= 0 || memory.store.newest_step() >= 0;
  if (!resumes && any_steps) return;
  remember_lineage(disk.store.place(), disk.store.named_lineage(), disk.ranks);
  remember_disk(memory.store.place(), absolute(disk.store.directory()), memory.ranks);
}

std::optional<LoadedStep> open_newest(const Tier& disk, const Tier& memory, const FilesToRead& needed) {
  auto step = find_newest(disk, memory, needed);
  if (step) memory.store.remove_older_than(age_of(step), memory.ranks);
  return step;
}

}  // namespace trivet::checkpoint
