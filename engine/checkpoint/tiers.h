// A job's checkpoints in two places: on disk seldom, and in the memory of its hosts often.
//
//   memory   every step:        step-00000107 on each host, with copies on the next hosts; lost when all of its holders are
//   disk     every 100 steps:   step-00000100
//
// A resume takes the newest step of either that is valid; of the same step, the one on disk. Both belong to one run: steps in
// memory that another run has left are refused. Manifests, and a file on disk that each start writes, tell whose steps
// they are and which start is the latest, because a start may be lost before it has saved anything there.
#pragma once

#include <optional>

#include "engine/checkpoint/checkpoint_store.h"

namespace trivet::checkpoint {

// A store with the ranks as its own group reaches them.
struct Tier {
  CheckpointStore& store;
  Participants ranks;
};

// Both are collective. Acquires both stores for the same start of the same run. `resumes`: the run goes on from their steps;
// otherwise it is a new run, and the caller refuses steps that are there. A disk that knows of no run takes over that of the
// steps in memory. Throws as CheckpointStore::acquire does.
void acquire(const Tier& disk, const Tier& memory, bool resumes);
// Removes the steps in memory that are older than the one it opens. Empty when there are no steps. Throws CheckpointError
// (CheckpointCorrupt) when none of those on disk is valid, and none in memory either. `needed` is for steps in memory.
std::optional<LoadedStep> open_newest(const Tier& disk, const Tier& memory, const FilesToRead& needed);

}  // namespace trivet::checkpoint
