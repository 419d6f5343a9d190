#include "engine/checkpoint/tiers.h"

#include <algorithm>
#include <exception>

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
  if (age_of(on_disk) < newest_on_disk)  // which has turned out to be damaged
    if (auto step = memory.store.open_newer(age_of(on_disk), memory.ranks, needed)) return step;
  if (none_is_valid) std::rethrow_exception(none_is_valid);
  return on_disk;
}

}  // namespace

void acquire(const Tier& disk, const Tier& memory, bool resumes) {
  disk.store.acquire(disk.ranks);
  Lineage known = disk.store.lineage();
  const Lineage before = resumes ? disk.store.remembered_lineage(disk.ranks) : Lineage{};
  if (known.origin.empty()) known.origin = before.origin;
  if (known.origin == before.origin) known.start = std::max(known.start, before.start + 1);
  memory.store.acquire(memory.ranks, known);
  disk.store.set_lineage(memory.store.lineage());  // memory may know of a later start, which has saved nothing on disk
  const bool any_steps = disk.store.newest_step() >= 0 || memory.store.newest_step() >= 0;
  if (resumes || !any_steps) disk.store.remember_lineage(disk.ranks);
}

std::optional<LoadedStep> open_newest(const Tier& disk, const Tier& memory, const FilesToRead& needed) {
  auto step = find_newest(disk, memory, needed);
  if (step) memory.store.remove_older_than(age_of(step), memory.ranks);
  return step;
}

}  // namespace trivet::checkpoint
